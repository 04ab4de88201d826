import { JobError, reworded } from "../../../util/errors.js";
import type { BulkPass, BulkRun } from "../../paid-engine.js";
import type { PromptState } from "../ask-row.js";
import type { PromptBulk } from "../bulk.js";
import { openBatchApi } from "./batch-api.js";
import { type FileLimits, fileLimits } from "./input-file.js";
import { sendingPass, stateOfRow, waitingPass } from "./passes.js";
import { batchesText, type BatchState, placeText } from "./run-batches.js";
import { createKeySet } from "../texts/key-set.js";
import { createSubmitter, type Submitter } from "./submit.js";
import { takeUp } from "./take-up.js";

/** Asks in batches of the Batch API. @param prompts called when it is there: it has what this returns */
export function createBulk(prompts: () => PromptState, limits: Readonly<FileLimits> = fileLimits): PromptBulk {
  let bulk: { readonly state: BatchState; readonly submitter: Submitter } | undefined;
  const begun = (): NonNullable<typeof bulk> => {
    if (bulk === undefined) {
      throw new Error("rows are asked in bulk before batches have begun");
    }
    return bulk;
  };
  return {
    mostRequests: limits.requests,
    get isBegun() {
      return bulk !== undefined;
    },
    refusalOf: (key) => bulk?.state.refused.get(key),
    async begin(run, { index }) {
      bulk = await begin(prompts(), { run, isSubmitter: index === 0, limits });
    },
    stateOf: (inputs) => stateOfRow(begun().state, inputs),
    pass() {
      const { state, submitter } = begun();
      const pass = state.isSubmitter ? sendingPass(state, submitter) : waitingPass(state, () => takeUp(state));
      return namingBatches(state, pass);
    },
  };
}

interface BulkOptions {
  readonly run: BulkRun;
  readonly isSubmitter: boolean;
  readonly limits: Readonly<FileLimits>;
}

async function begin(
  prompts: PromptState,
  { run, isSubmitter, limits }: BulkOptions,
): Promise<{ readonly state: BatchState; readonly submitter: Submitter }> {
  const state: BatchState = {
    prompts,
    api: openBatchApi(prompts.servers[0]),
    run,
    isSubmitter,
    limits: { ...limits },
    files: new Map(),
    live: new Map(),
    taken: new Set(),
    underWay: createKeySet(),
    refused: new Map(),
    faults: new Map(),
    outcomes: 0,
    answers: prompts.answers.earlier.answers,
  };
  await takeUp(state);
  const { live } = state;
  if (live.size > 0) {
    run.log(
      `${batchesText([...live.keys()])} under way at ${placeText(state)} since an earlier attempt, and not sent again`,
    );
  }
  return { state, submitter: createSubmitter(state) };
}

/** Says in errors which batches go on without this attempt. */
function namingBatches(state: BatchState, pass: BulkPass): BulkPass {
  const naming = async <T>(work: Promise<T>): Promise<T> => {
    try {
      return await work;
    } catch (error) {
      throw error instanceof JobError && state.live.size > 0 ? withBatches(state, error) : error;
    }
  };
  return { add: (inputs) => naming(pass.add(inputs)), end: () => naming(pass.end()) };
}

function withBatches({ live }: BatchState, error: JobError): JobError {
  const { message, hint = "" } = error;
  return reworded(error, {
    message: `${message}; ${batchesText([...live.keys()])} under way at the server`,
    hint: `${hint}${hint === "" ? "" : "; "}batches go on without this attempt, and the same command takes them up`,
  });
}
