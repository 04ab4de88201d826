import { z } from "../../util/zod.js";

const error = "expected a path such as predictions, data.scores or outputs[0].data; a dot alone is the whole answer";

/** Where an answer has its predictions: names of keys and indices of lists; none: the answer is the predictions. */
export const responsePath = z
  .string({ error })
  .regex(/^(\.|[^.[\]\s]+(\[\d{1,6}\])*(\.[^.[\]\s]+(\[\d{1,6}\])*)*)$/, error)
  .transform((given): readonly (string | number)[] =>
    (given.match(/\[\d+\]|[^.[\]]+/g) ?? []).map((part) => (part.startsWith("[") ? Number(part.slice(1, -1)) : part)),
  );
