import { copyFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DuckDBListValue } from "@duckdb/node-api";
import { projectFolder } from "./cli.js";
import type { SpecOverrides } from "./job.js";
import { outputRows } from "./output.js";
import { type Row, readRows } from "./parquet.js";

const fixtures = join(projectFolder, "fixtures/tokenizers");
/** `id`, `body`, and the `embedding` of the text that Python's tokenizers and ONNX Runtime compute. */
export const textsFile = join(fixtures, "texts.parquet");
export const encoderFile = join(fixtures, "encoder.onnx");
const tokenizerFile = (name: "bert" | "roberta" | "unigram"): string => join(fixtures, `${name}.json`);

/** A job that embeds texts. Its tokenizer is a copy of its own. */
export interface TextJob {
  readonly spec: string;
  readonly out: string;
  readonly tokenizer: string;
  readonly rewrite: (overrides: SpecOverrides) => Promise<void>;
}

/** The model's inputs as the spec names them. `tokens`: more of the input that is tokenized. */
export function tokenInputs(tokens: object = {}): object {
  return {
    input_ids: { tokenize: "body", tokenizer: "tokenizer.json", max: 64, ...tokens },
    attention_mask: { mask_of: "input_ids" },
    token_type_ids: { types_of: "input_ids" },
  };
}

/** Writes a spec that embeds the texts of `textsFile` into `<folder>/out`, in spans of 60 rows. */
export async function textJob(folder: string, overrides: SpecOverrides = {}): Promise<TextJob> {
  const tokenizer = join(folder, "tokenizer.json");
  await copyFile(tokenizerFile("bert"), tokenizer);
  const spec = join(folder, "job.yaml");
  const rewrite = async ({ input, model, output, engine, ...rest }: SpecOverrides): Promise<void> => {
    const text = {
      version: 1,
      name: "texts",
      input: { path: textsFile, ...input },
      model: { path: encoderFile, inputs: tokenInputs(), ...model },
      engine: { threads: 1, ...engine },
      output: { columns: ["id"], parquet: { path: "out" }, ...output },
      commit_rows: 60,
      ...rest,
    };
    await writeFile(spec, JSON.stringify(text));
  };
  await rewrite(overrides);
  return { spec, out: join(folder, "out"), tokenizer, rewrite };
}

const numbersOf = ({ embedding }: Row): ArrayLike<number> =>
  (embedding instanceof DuckDBListValue ? embedding.items : (embedding ?? [])) as ArrayLike<number>;

/** How rows of an output differ from what Python computes, for the rows that `keep` says. Empty when nothing differs. */
export async function embeddingFaults(out: string, keep: (id: number) => boolean = () => true): Promise<string[]> {
  return await faultsOf(await outputRows(out), keep);
}

/** How rows with `id` and `embedding` differ from those of `file`. */
export async function faultsOf(
  rows: readonly Row[],
  keep: (id: number) => boolean = () => true,
  file = textsFile,
): Promise<string[]> {
  const expected = (await readRows(file)).filter(({ id }) => keep(Number(id)));
  const found = new Map(rows.map((row) => [Number(row["id"]), numbersOf(row)]));
  const faults = rows.length === expected.length ? [] : [`${rows.length} rows, expected ${expected.length}`];
  for (const row of expected) {
    const numbers = found.get(Number(row["id"]));
    const wanted = Array.from(numbersOf(row));
    const far = wanted.findIndex((value, index) => !(Math.abs(value - (numbers?.[index] ?? Number.NaN)) <= 1e-5));
    if (far >= 0 || wanted.length === 0) {
      faults.push(`row ${String(row["id"])}: element ${far} is ${numbers?.[far]}, expected ${wanted[far]}`);
    }
  }
  return faults;
}
