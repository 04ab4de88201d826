import type { AnswerFault } from "../../columnar/types.js";
import { readAnswer, type ResponseValue } from "../../text/response.js";
import type { ModelAnswer } from "./answer.js";
import type { PromptTask } from "./request.js";

/** What an answer says of its row. */
export interface PromptValues {
  readonly kind: "values";
  readonly values: ReadonlyMap<string, ResponseValue>;
  readonly embedding: ModelAnswer["embedding"];
}

/** Why a row has no prediction. */
export interface PromptFault {
  readonly kind: "fault";
  /** undefined: the server fails on the row. */
  readonly reason: AnswerFault | undefined;
  readonly message: string;
}

export type JudgedAnswer = PromptValues | PromptFault;

/** Reads the values of an answer. @param widthOf takes the width of a vector, and returns the one that all must have */
export function judgeAnswer(
  { kind, response }: PromptTask,
  answer: ModelAnswer,
  widthOf: (found: number) => number,
): JudgedAnswer {
  const { content, embedding, finish, isRefusal } = answer;
  if (kind === "embedding") {
    if (embedding === undefined || !embedding.every((value) => Number.isFinite(value))) {
      return fault("answer_invalid", "the answer is no vector of finite numbers");
    }
    const width = widthOf(embedding.length);
    return embedding.length === width
      ? { kind: "values", values: new Map(), embedding }
      : fault("answer_invalid", `the vector has ${embedding.length} values, and others have ${width}`);
  }
  if (isRefusal) {
    return fault("answer_refused", finish === "content_filter" ? "its answer was filtered" : "its answer is a refusal");
  }
  if (finish === "length") {
    return fault("answer_cut_off", "the answer is longer than model.sampling or the context allows");
  }
  if (content === undefined) {
    return fault("answer_invalid", "the answer has no text");
  }
  const read = readAnswer(content, response);
  return "problem" in read ? fault("answer_invalid", read.problem) : { kind: "values", values: read.values, embedding };
}

function fault(reason: AnswerFault, message: string): PromptFault {
  return { kind: "fault", reason, message };
}
