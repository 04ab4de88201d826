import { identity, smallJob } from "./faulty.js";
import type { SpecOverrides } from "./job.js";
import { reject } from "./rejects.js";
import { scoreHere } from "./score.js";

/** 100 rows in spans of 8; each fifth has no x, which is a bad row. The rows from 90 on are filtered out. */
const select = "SELECT row::INTEGER AS id, if(row % 5 = 0, NULL, row)::FLOAT AS x FROM range(100) t(row)";
/** Keys of the job whose rows these are. */
const settings = { ...reject, commit_rows: 8, engine: { threads: 1 }, input: { where: "id < 90" } };
/** Writes and runs a job of which each fifth row is rejected. */
export async function rejectingJob(
  folder: string,
  more: Omit<SpecOverrides, "model"> & { readonly modelSpec?: object } = {},
): ReturnType<typeof smallJob> {
  const job = await smallJob(folder, { model: identity, select, ...settings, ...more });
  await scoreHere(job.spec);
  return job;
}
