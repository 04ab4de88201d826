import { z } from "../util/zod.js";
import { bindingKeys, checkPlace, modelPath, modelSha256, type ModelSpec } from "./model-spec.js";
import { isHttpUri } from "./model-uri.js";
import { server } from "./server/server-spec.js";

/** A second model, whose predictions are compared with the champion's (`model`) and published nowhere. */
export interface ChallengerSpec
  extends Pick<ModelSpec, "path" | "server" | "sha256" | "inputs" | "outputs" | "cast" | "missing"> {
  /** Numbers that differ by more are counted. */
  readonly tolerance: number;
}

/** The challenger as a model of its own: what says how a registry or a store is reached holds for both. */
export function challengerModel(model: ModelSpec, challenger: ChallengerSpec): ModelSpec {
  const { path, sha256, inputs, outputs, cast, missing } = challenger;
  return { ...model, path, server: challenger.server, sha256, inputs, outputs, cast, missing };
}

export const challenger = z
  .strictObject({
    path: modelPath
      .optional()
      .describe("A second model, named as model.path names the first. Its predictions are not published."),
    server: server.optional(),
    sha256: modelSha256.optional().describe("SHA-256 that the challenger's file must have."),
    ...bindingKeys,
    cast: bindingKeys.cast.unwrap().optional().describe("As model.cast, which is the default."),
    missing: bindingKeys.missing.unwrap().optional().describe("As model.missing, which is the default."),
    tolerance: z
      .number("expected a number")
      .min(0, "expected 0 or more")
      .default(0.01)
      .describe(
        "Rows whose two predictions differ by more than this are counted, for outputs that are floating-point numbers.",
      ),
  })
  .superRefine(checkPlace("challenger"))
  .superRefine(({ path = "", sha256, server: served }, context) => {
    if (served?.protocol === "openai") {
      const message =
        "a language model cannot be a challenger: its answers would cost money, and would neither be stored nor counted against model.budget";
      context.addIssue({ code: "custom", path: ["server", "protocol"], message });
    }
    if (isHttpUri(path) && sha256 === undefined) {
      const message = "expected the challenger's sha256 next to a URL, whose server could send another file";
      context.addIssue({ code: "custom", path: ["sha256"], message });
    }
  });

/** Says where keys of the challenger are, given as those of a model: `["model", "server"]` is `["challenger", "server"]`. */
export function challengerPlaces<T>(where: (path: readonly string[]) => T): (path: readonly string[]) => T {
  return ([first = "", ...others]) => where([first === "model" ? "challenger" : first, ...others]);
}

/** Rewrites keys of a model in a text as those of the challenger: `model.outputs.p` becomes `challenger.outputs.p`. */
export function challengerKeys(text: string): string {
  return text.replaceAll(/(?<![\w./-])model\.(?=(?:path|server|sha256|inputs|outputs|cast|missing)\b)/g, "challenger.");
}
