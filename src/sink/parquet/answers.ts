import { type Fence, namesIn, type Store } from "../../stores/store.js";
import type { AnswerJournal, KeptAnswer } from "../ledger.js";
import { answersIn, textsOf } from "./answer-lines.js";
import type { Layout } from "./layout.js";

/** Lines that are written at once. A reader holds a whole file in memory. */
const textBytes = 4 * 1024 ** 2;
/** Files that are read at once. */
const readAtOnce = 8;

/** How long an answer waits for others: a killed attempt pays again for those of this time, and each write is a file. */
const pauseMs = 1000;

/** Opens the journal of a run: a folder to which each attempt adds files. */
export function openAnswers(store: Store, layout: Layout, writer: string, fence: Fence): AnswerJournal {
  let files = 0;
  return {
    pauseMs,
    read: () => readAnswers(store, layout),
    async keep(answers) {
      for (const text of textsOf(answers, textBytes)) {
        let created = { outcome: "exists" };
        while (created.outcome === "exists") {
          files += 1;
          created = await store.create(`${layout.answers}/${String(files).padStart(6, "0")}.${writer}`, text, fence);
        }
      }
    },
  };
}

/** Yields all answers that are kept of a run. */
async function* readAnswers(store: Store, { answers: log }: Layout): AsyncGenerator<KeptAnswer> {
  const names = await namesIn(store, log);
  for (let start = 0; start < names.length; start += readAtOnce) {
    const group = names.slice(start, start + readAtOnce);
    for (const text of await Promise.all(group.map((name) => store.readText(`${log}/${name}`)))) {
      yield* answersIn(text ?? "");
    }
  }
}
