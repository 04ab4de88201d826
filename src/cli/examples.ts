/** Command lines that show what a command is for, by the name of the command. */
export const examples: Readonly<Record<string, readonly string[]>> = {
  run: [
    "infer-batch run job.yaml",
    "infer-batch run job.yaml --param ds=2026-01-31",
    "infer-batch run job.yaml --worker 0/4 --steal",
  ],
  backfill: ["infer-batch backfill job.yaml --param ds=2026-01-01..2026-01-31"],
  pipe: ["cat rows.arrows | infer-batch pipe job.yaml > predictions.arrows"],
  plan: ["infer-batch plan job.yaml --param ds=2026-01-31"],
  preview: [
    "infer-batch preview job.yaml",
    "infer-batch preview job.yaml --sample 50",
    'infer-batch preview job.yaml --where "amount > 1000" --json',
  ],
  compare: [
    "infer-batch compare job.yaml --model churn-int8.onnx",
    "infer-batch compare job.yaml --model models:/churn@champion --model models:/churn@next",
  ],
  status: [
    "infer-batch status job.yaml",
    "infer-batch status jobs/*.yaml --held",
    "infer-batch status jobs/*.yaml --expect-by 06:00",
  ],
  checks: ["infer-batch checks job.yaml --last 60", "infer-batch checks job.yaml --last 30 --json"],
  history: ["infer-batch history job.yaml", "infer-batch history job.yaml --last 7 --json"],
  diff: [
    "infer-batch diff job.yaml --param ds=2026-01-31 --against ds=2026-01-30",
    "infer-batch diff out/new --against out/old --key customer_id --json",
  ],
  evaluate: [
    "infer-batch evaluate job.yaml --labels churn.parquet --key customer_id --label churned --param ds=2026-01-01..2026-01-31",
    "infer-batch evaluate job.yaml --labels crm.churn --label churned --date ds --by region --json",
  ],
  prune: ["infer-batch prune job.yaml --keep 30 --dry-run", "infer-batch prune job.yaml --older-than 90d"],
  erase: [
    "infer-batch erase job.yaml --keys customers.txt --dry-run",
    "infer-batch erase job.yaml --keys customers.csv --key customer_id",
  ],
  approve: ['infer-batch approve job.yaml --reason "prices rose on purpose"'],
  discard: ['infer-batch discard job.yaml --reason "features in grams"'],
  init: ["infer-batch init --model churn.onnx --input 'data/*.parquet'"],
  inspect: ["infer-batch inspect churn.onnx", "infer-batch inspect data/part-0.parquet"],
};
