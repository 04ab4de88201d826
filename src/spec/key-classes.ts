/**
 * What a changed key means for a run that is planned already. `plan`: the run is refused (66) where its rows would
 * differ, or keeps what its plan says. `attempt`: it applies from the next attempt on. `verdict`: it applies until the
 * verdict is made, which records it.
 */
type KeyClass = "plan" | "attempt" | "verdict";

/** Classes by dotted key; a key has the class of the longest entry that it begins with. */
const classes: Readonly<Record<string, KeyClass>> = {
  version: "plan",
  name: "plan",
  timezone: "plan",
  params: "plan",
  "input.path": "plan",
  "input.format": "plan",
  "input.ready": "attempt",
  "input.wait": "attempt",
  "input.min_rows": "attempt",
  "input.freshness": "attempt",
  "input.partitions": "plan",
  "input.columns": "plan",
  "input.where": "plan",
  "input.verify": "attempt",
  "input.endpoint": "attempt",
  "input.region": "attempt",
  "input.path_style": "attempt",
  "input.request_payer": "attempt",
  "input.timeouts": "attempt",
  "input.spool": "attempt",
  "model.path": "plan",
  "model.sha256": "plan",
  "model.registry": "attempt",
  "model.server.protocol": "plan",
  "model.server.name": "plan",
  "model.server.version": "plan",
  "model.server.path": "plan",
  "model.server.request": "plan",
  "model.server.response": "plan",
  "model.server.signature": "plan",
  "model.server.url": "attempt",
  "model.server.tls": "attempt",
  "model.server.auth": "attempt",
  "model.server.token": "attempt",
  "model.server.headers": "attempt",
  "model.server.timeout": "attempt",
  "model.server.concurrency": "attempt",
  "model.server.tries": "attempt",
  "model.server.flush_seconds": "attempt",
  "model.prompt": "plan",
  "model.prompt.tokenizer": "attempt",
  "model.sampling": "plan",
  "model.response": "plan",
  "model.budget": "attempt",
  "model.inputs": "plan",
  "model.outputs": "plan",
  "model.cast": "plan",
  "model.missing": "plan",
  "model.endpoint": "attempt",
  "model.region": "attempt",
  "model.path_style": "attempt",
  "model.request_payer": "attempt",
  "model.timeouts": "attempt",
  challenger: "attempt",
  engine: "attempt",
  "output.columns": "plan",
  "output.lineage": "plan",
  "output.parquet": "attempt",
  "output.parquet.path": "plan",
  "output.postgres": "attempt",
  "output.postgres.table": "plan",
  "output.postgres.mode": "plan",
  "output.postgres.key": "plan",
  "output.postgres.on_duplicate": "plan",
  "output.postgres.control_schema": "plan",
  commit_rows: "plan",
  on_bad_row: "attempt",
  max_rejects: "attempt",
  retry: "attempt",
  "checks.on_fail": "verdict",
  "checks.baseline": "plan",
  "checks.factor": "verdict",
  "checks.rejects": "verdict",
  "checks.outputs": "verdict",
  "checks.inputs": "verdict",
  "checks.expect": "verdict",
  "checks.slices": "plan",
  "checks.sql": "plan",
  "checks.unique": "verdict",
  "checks.golden": "attempt",
  "checks.golden.path": "plan",
  reuse: "plan",
  report: "attempt",
};

/** The class of a key ("output.parquet.path"); undefined: the key has no class yet. */
export function classOfKey(key: string): KeyClass | undefined {
  const parts = key.split(".");
  for (let length = parts.length; length > 0; length -= 1) {
    const found = classes[parts.slice(0, length).join(".")];
    if (found !== undefined) {
      return found;
    }
  }
  return undefined;
}
