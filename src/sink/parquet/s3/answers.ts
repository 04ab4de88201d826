import type { AnswerFiles } from "../common/answers/journal.js";
import type { Target } from "../common/committed-parts.js";
import { retractIfSuperseded } from "./retract-superseded.js";
import { objectAt } from "./target-state.js";
import type { S3Tools } from "./tools.js";

/** How answers are kept in S3: each time as an object of their own. */
export function answerObjects({ store }: S3Tools, { check }: Target): AnswerFiles {
  return {
    readAtOnce: 8,
    pauseMs: 2000,
    async create(uri, text) {
      await store.put(objectAt(uri), text);
      await retractIfSuperseded(check, () => store.remove(objectAt(uri)));
    },
  };
}
