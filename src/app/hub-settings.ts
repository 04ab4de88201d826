import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import type { HubModelOptions } from "../models/huggingface.js";

/** Reads where the Hugging Face Hub is, and the token, as Python's huggingface_hub does. */
export async function hubSettings(
  env: Readonly<Record<string, string | undefined>>,
): Promise<Pick<HubModelOptions, "endpoint" | "token">> {
  const endpoint = (env["HF_ENDPOINT"] ?? "https://huggingface.co").replace(/\/+$/, "");
  const given = env["HF_TOKEN"] ?? env["HUGGING_FACE_HUB_TOKEN"];
  if (given !== undefined && given.trim() !== "") {
    return { endpoint, token: given.trim() };
  }
  const home = env["HF_HOME"] ?? join(env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "huggingface");
  const stored = await readFile(env["HF_TOKEN_PATH"] ?? join(home, "token"), "utf8").catch(() => ""); // public models need none
  return { endpoint, token: stored.trim() === "" ? undefined : stored.trim() };
}
