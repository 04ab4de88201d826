import { columnsIn, parseTemplate } from "../../text/prompt-template.js";
import { JobError } from "../../util/errors.js";
import type { JobSpec } from "../job-spec.js";
import { withPromptInputs } from "./prompt-keys.js";

/** The key that names a file with a prompt. */
export const promptFile = ["model", "prompt", "file"];

interface FileTools {
  /** The key as messages name it. */
  readonly place: string;
  readonly readFile: ((path: string, place: string) => string) | undefined;
}

/**
 * Puts the text of `model.prompt.file` in its place.
 * @throws JobError FILE_MISSING, PERMISSION, SPEC_INVALID for a text that is no prompt
 */
export function withPromptFile(spec: JobSpec, { place, readFile }: FileTools): JobSpec {
  const { file, system, ...others } = spec.model.prompt ?? {};
  if (file === undefined || readFile === undefined) {
    return spec;
  }
  const { truncate } = others;
  const user = readFile(file, place);
  const parsed = parseTemplate(user);
  const problem =
    "problem" in parsed
      ? parsed.problem
      : parsed.columns.length === 0
        ? "expected a {{column}} in it: all rows would have the same prompt"
        : truncate !== undefined && !columnsIn([system, user]).includes(truncate.column)
          ? `the prompt has no {{${truncate.column}}}, which model.prompt.truncate names`
          : undefined;
  if (problem !== undefined) {
    throw new JobError("SPEC_INVALID", `reading ${place}: ${file}: ${problem}`);
  }
  // In the order of the schema, as a stored plan has them.
  return { ...spec, model: withPromptInputs({ ...spec.model, prompt: { system, user, ...others } }) };
}
