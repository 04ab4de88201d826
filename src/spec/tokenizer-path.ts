import { isHttpUri, isMlflowUri, modelUriProblem } from "./model-uri.js";
import { text } from "./values.js";

/** The path or URI of a tokenizer.json. */
export const tokenizerPath = text.superRefine((path, context) => {
  const message =
    isHttpUri(path) || isMlflowUri(path)
      ? "expected a file, s3://, gs://, az:// or hf://: a tokenizer is read from these only"
      : modelUriProblem(path);
  if (message !== undefined) {
    context.addIssue({ code: "custom", message });
  }
});
