import { expect } from "vitest";
import { runHere } from "./cli.js";

export async function inspected(file: string): Promise<Record<string, unknown>> {
  const { code, stdout, stderr } = await runHere(["inspect", file, "--json"]);
  expect([code, stderr, stdout.split("\n").length]).toEqual([0, "", 2]);
  return JSON.parse(stdout) as Record<string, unknown>;
}
