// Who asks the same prompts: infer-batch, Daft's `prompt`, Ray Data's HTTP processor, a loop around the openai client.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { findPromptPeer } from "../python.mjs";
import { labels, maxTokens, program, specOf, system } from "./world.mjs";

/** Requests in flight that the others are allowed; infer-batch finds out by itself. */
const concurrency = 64;

/** The JSON Schema of an answer, as infer-batch makes it of its spec. */
export const schema = {
  type: "object",
  properties: {
    label: { type: "string", enum: labels },
    sure: { type: "number", minimum: 0, maximum: 1 },
  },
  required: ["label", "sure"],
  additionalProperties: false,
};

/**
 * @typedef {object} Contender
 * @property {string} id
 * @property {string} name as the tables show it
 * @property {readonly string[]} contests those that it takes part in
 * @property {(at: { url: string, table: string, folder: string }) => string[]} command of a run in `folder`, which writes
 * Parquet files into its folder `out`
 * @property {string} [absent] why it cannot run here
 */

/** @returns {{ contenders: Contender[], versions: string[] }} */
export function findPeers() {
  const [daft, ray, openai] = ["daft", "ray", "openai"].map(findPromptPeer);
  const every = ["limit", "faults", "kill"];
  return {
    contenders: [
      { id: "infer-batch", name: "**infer-batch**", contests: every, command: inferBatch },
      python(daft, "daft", "Daft", every, ["peer_daft_prompt.py", { runner: "native", settings: "tuned" }]),
      python(
        daft,
        "daft-checkpoint",
        "Daft on Ray, with a checkpoint",
        ["kill"],
        ["peer_daft_prompt.py", { runner: "ray", settings: "tuned" }],
      ),
      python(
        daft,
        "daft-defaults",
        "Daft, default settings",
        ["faults"],
        ["peer_daft_prompt.py", { runner: "native", settings: "default" }],
      ),
      python(ray, "ray", "Ray Data, with a checkpoint", every, ["peer_ray_http.py", { settings: "tuned" }]),
      python(
        ray,
        "ray-defaults",
        "Ray Data, default settings",
        ["faults"],
        ["peer_ray_http.py", { settings: "default" }],
      ),
      python(openai, "loop", "loop around the `openai` client", every, ["loop_openai.py", {}]),
    ],
    versions: [daft, ray, openai].flatMap(({ versions }) => versions),
  };
}

function inferBatch({ url, table, folder }) {
  const spec = join(folder, "job.yaml");
  const keys = { on_bad_row: "reject", max_rejects: "1%" };
  writeFileSync(spec, JSON.stringify(specOf({ url, table: join(table, "*.parquet"), out: "out", ...keys })));
  return [process.execPath, program, "run", spec, "--json", "--no-progress"];
}

/** @returns {Contender} */
function python({ interpreter, absent }, id, name, contests, [script, more]) {
  const file = fileURLToPath(new URL(`../peers/${script}`, import.meta.url));
  const command = ({ url, table, folder }) => {
    const [out, state] = [join(folder, "out"), join(folder, "state")];
    const job = { url, table, out, state, system, schema, labels, max_tokens: maxTokens, concurrency, ...more };
    return [interpreter, file, JSON.stringify(job)];
  };
  return { id, name, contests, command, absent };
}
