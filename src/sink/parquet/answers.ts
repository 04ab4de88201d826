import { type Fence, namesIn, type Store, textAt } from "../../stores/store.js";
import type { AnswerJournal, KeptAnswer } from "../answers.js";
import { answersIn, textsOf } from "./answer-lines.js";
import type { Layout } from "./layout.js";

/** Lines that are written at once. A reader holds a whole file in memory. */
const textBytes = 4 * 1024 ** 2;
/** Files that are read at once. */
const readAtOnce = 8;

/** Opens the journal of a run: a log to which each attempt adds lines. */
export function openAnswers(store: Store, layout: Layout, fence: Fence): AnswerJournal {
  return {
    pauseMs: store.logPauseMs,
    read: () => readAnswers(store, layout),
    async keep(answers) {
      for (const text of textsOf(answers, textBytes)) {
        await store.append(layout.answers, text, fence);
      }
    },
  };
}

/** Yields all answers that are kept of a run. */
async function* readAnswers(store: Store, { answers: log }: Layout): AsyncGenerator<KeptAnswer> {
  const names = await namesIn(store, log);
  for (let start = 0; start < names.length; start += readAtOnce) {
    const group = names.slice(start, start + readAtOnce);
    for (const text of await Promise.all(group.map((name) => textAt(store, `${log}/${name}`)))) {
      yield* answersIn(text ?? "");
    }
  }
}
