import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import type { HubModelOptions } from "../../models/huggingface.js";
import { JobError } from "../../util/errors.js";

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Reads where the Hugging Face Hub is, and the token, as Python's huggingface_hub does.
 * @throws JobError USAGE for an endpoint that is not a URL, or a token that cannot be sent
 */
export async function hubSettings(env: Environment): Promise<Pick<HubModelOptions, "endpoint" | "token">> {
  return { endpoint: endpointIn(env), token: await tokenIn(env) };
}

function endpointIn({ HF_ENDPOINT: given = "" }: Environment): string {
  const endpoint = given.trim() === "" ? "https://huggingface.co" : given.trim().replace(/\/+$/, "");
  if (!/^https?:\/\//i.test(endpoint) || !URL.canParse(endpoint)) {
    throw new JobError("USAGE", `reading HF_ENDPOINT: ${endpoint} is not a URL`, {
      hint: "write the Hub's URL with https://, or unset the variable for huggingface.co",
    });
  }
  return endpoint;
}

async function tokenIn(env: Environment): Promise<string | undefined> {
  const given = (env["HF_TOKEN"] ?? env["HUGGING_FACE_HUB_TOKEN"])?.trim() ?? "";
  const home = env["HF_HOME"] ?? join(env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "huggingface");
  const path = env["HF_TOKEN_PATH"] ?? join(home, "token");
  const token = given === "" ? (await readFile(path, "utf8").catch(() => "")).trim() : given; // public models need none
  if (!/^[\x21-\x7e]*$/.test(token)) {
    throw new JobError(
      "USAGE",
      `reading the token of the Hugging Face Hub: ${given === "" ? path : "HF_TOKEN"} is not a token`,
      { hint: "a token is one word of ASCII characters, as hf auth login stores it" },
    );
  }
  return token === "" ? undefined : token;
}
