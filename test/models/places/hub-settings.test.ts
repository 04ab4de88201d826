import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { hubSettings } from "#src/models/places/huggingface.js";
import { refusalOf } from "../../support/faulty.js";
import { scratch } from "../../support/job.js";

const nowhere = { HF_HOME: "/nowhere" };

test.each([undefined, "", " "])("HF_ENDPOINT %j means huggingface.co", async (endpoint) => {
  expect(await hubSettings({ ...nowhere, HF_ENDPOINT: endpoint })).toEqual({
    endpoint: "https://huggingface.co",
    token: undefined,
  });
});

test.each(["hub.example", "localhost:8080", "ftp://hub.example"])(
  "HF_ENDPOINT %s is refused with 64",
  async (endpoint) => {
    expect(await refusalOf(hubSettings({ ...nowhere, HF_ENDPOINT: endpoint }))).toMatch(/^64 USAGE\n.*HF_ENDPOINT/);
  },
);

test("a token of the Hub that no header can carry is refused with 64, and not shown", async () => {
  const path = join(scratch.path, "token");
  await writeFile(path, "hf_one\nhf_two\n");
  for (const env of [{ HF_TOKEN: "hf_ä€" }, { HF_TOKEN_PATH: path }]) {
    const refusal = await refusalOf(hubSettings({ ...nowhere, ...env }));
    expect(refusal).toMatch(/^64 USAGE\n.*the token of the Hugging Face Hub/);
    expect(refusal).not.toContain("hf_");
  }
});

test("a stored token is read without the newline at its end", async () => {
  await writeFile(join(scratch.path, "token"), "hf_stored\n");
  expect((await hubSettings({ HF_HOME: scratch.path })).token).toBe("hf_stored");
});
