import type { HttpAnswer } from "../../net/http-endpoint.js";
import { parseJson } from "../../plan/parse-plan.js";
import { isRecord } from "../../util/checks.js";
import { JobError } from "../../util/errors.js";
import { printable } from "../../util/printable.js";

/** Makes the error for a response of a registry that a retry would not change. */
export function refusedBy(
  { status, said, place }: HttpAnswer,
  { doing, url, hasLogin }: { readonly doing: string; readonly url: string; readonly hasLogin: boolean },
): JobError {
  const answer = parseJson(said);
  const message = isRecord(answer) && typeof answer["message"] === "string" ? firstLine(answer["message"]) : undefined;
  if (status === 401) {
    return new JobError(
      "PERMISSION",
      `${doing}: ${url} ${hasLogin ? "refuses the login" : "asks for a login"} (HTTP 401)`,
      {
        hint: "set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
      },
    );
  }
  if (status === 403) {
    const why = message ?? firstLine(said);
    return new JobError("PERMISSION", `${doing}: ${url} refuses it (HTTP 403)${why === "" ? "" : `: ${why}`}`, {
      hint: /host header/i.test(why)
        ? "start the server with --allowed-hosts and the name that the URL has"
        : "the user needs the permission to read this model",
    });
  }
  // MLflow answers 400 to an alias that does not exist.
  if (message !== undefined) {
    return new JobError("FILE_MISSING", `${doing}: ${message} (${url})`, {
      hint: "set model.path to a model that the registry has, with an alias or a version of it",
    });
  }
  return new JobError("FILE_MISSING", `${doing}: the server answered ${place} with HTTP ${status}`, {
    hint: "set model.registry.url or MLFLOW_TRACKING_URI to the URL of an MLflow server, with its path if it has one",
  });
}

const shownCharacters = 300;

function firstLine(text: string): string {
  const [first = ""] = text.trim().split(/\r?\n/, 1);
  return printable(first.slice(0, shownCharacters).replace(/\.$/, ""));
}
