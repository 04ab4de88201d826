import { spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { text as textOf } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { writeArrow } from "../support/arrow.js";
import { projectFolder } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { type SpecOverrides, scratch } from "../support/job.js";
import { endMarker, hasEnd, rowsOf, schemaBytes } from "../support/pipe.js";
import { torture } from "../support/torture.js";

const program = join(projectFolder, "bin/infer-batch.js");

async function world(
  folder: string,
  rows: number,
  { batchRows = 1000, ...overrides }: Omit<SpecOverrides, "model"> & { readonly batchRows?: number } = {},
) {
  const output = { columns: ["id"] };
  const { spec } = await smallJob(folder, { model: identity, select: "SELECT 1", output, ...overrides });
  const input = join(folder, "in.arrows");
  const select = `SELECT i::BIGINT AS id, CASE WHEN i % 97 = 5 THEN NULL ELSE i / 8 END::DOUBLE AS x FROM range(${rows}) t(i)`;
  await writeArrow(input, select, { kind: "stream", batchRows });
  return { spec, input, output: join(folder, "out.arrows") };
}

/** Runs a shell pipeline in which `$pipe` is the command. */
async function shell(script: string, env: Readonly<Record<string, string>>) {
  const child = spawn("bash", ["-c", script], {
    env: { ...process.env, NO_COLOR: "1", pipe: `${process.execPath} ${program} pipe`, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let [stdout, stderr] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  const code = await new Promise((resolve) => {
    child.once("close", resolve);
  });
  return { code, stdout, stderr };
}

describe("the pipe command", () => {
  test("pipe writes only the stream to stdout, its report to stderr, and rejects to --rejects", async () => {
    const paths = await world(scratch.path, 2000, { on_bad_row: "reject", max_rejects: 30 });
    const rejects = join(scratch.path, "rejects.jsonl");

    const { code, stderr } = await shell(
      'cat "$input" | $pipe "$spec" --rejects "$rejects" | cat > "$output"; exit ${PIPESTATUS[1]}',
      {
        ...paths,
        rejects,
      },
    );

    expect({ code, stderr }).toMatchObject({ code: 0 });
    expect(stderr).toMatch(/INFO: 1,979 rows of 2,000 rows scored, 21 rows rejected, in /);
    expect(stderr).toMatch(/WARN: 21 rows rejected\n\s*21 rows: null in x\n\s*stdin row 5 \(id=5\): NULL/);
    expect(rowsOf(await readFile(paths.output))).toHaveLength(1979);
    const [first = ""] = (await readFile(rejects, "utf8")).split("\n");
    expect(JSON.parse(first)).toEqual({
      shard: "stdin",
      row: 5,
      columns: { id: "5" },
      column: "x",
      reason: "null",
      value: null,
    });
  });

  test("pipe exits with 65 when its input is cut off, and its output has no end-of-stream marker", async () => {
    const paths = await world(scratch.path, 4000, { input: { where: "x is not null" } });

    const { code, stderr } = await shell(
      'head -c -8 "$input" | $pipe "$spec" > "$output"; exit ${PIPESTATUS[1]}',
      paths,
    );

    expect({ code, stderr }).toMatchObject({ code: 65 });
    expect(stderr).toMatch(
      /^error: reading stdin: the stream has no end: it stops at byte \d+, without an end-of-stream marker\n  hint: /,
    );
    expect(hasEnd(await readFile(paths.output))).toBe(false);
    expect(rowsOf(await readFile(paths.output))).toHaveLength(3958);
  });

  test("pipe exits with 0 when the reader of stdout leaves, and closes stdin", async () => {
    const paths = await world(scratch.path, 60_000, { input: { where: "x is not null" } });

    const { code, stdout, stderr } = await shell(
      'cat "$input" - < /dev/null | $pipe "$spec" | head -c 1000 | wc -c; exit ${PIPESTATUS[1]}',
      paths,
    );

    expect({ code, stdout: stdout.trim(), stderr }).toMatchObject({ code: 0, stdout: "1000" });
    expect(stderr).toContain("the reader of stdout closed it");
  });

  test.each(["input", "reader"])("pipe ends on SIGTERM while it waits for its %s", async (end) => {
    const paths = await world(scratch.path, 60_000, { input: { where: "x is not null" } });
    const stream = await readFile(paths.input);
    const child = spawn(process.execPath, [program, "pipe", paths.spec], { stdio: ["pipe", "pipe", "pipe"] });
    const ended = once(child, "exit");
    const said = textOf(child.stderr);
    child.stdin.on("error", () => undefined);
    child.stdin.write(end === "input" ? stream.subarray(0, schemaBytes(stream)) : stream);
    await once(child.stdout, "readable"); // no more than a few KiB are taken
    await sleep(300);

    child.kill("SIGTERM");

    expect(await ended).toEqual([143, null]);
    expect(await said).toContain("stopping on SIGTERM: what was written so far has no end-of-stream marker");
    child.stdout.destroy();
  });

  test("pipe exits with 75 when stdout is full", async () => {
    const paths = await world(scratch.path, 10);

    const { code, stderr } = await shell('$pipe "$spec" < "$input" > /dev/full', paths);

    expect(code).toBe(75);
    expect(stderr).toMatch(/^error: writing to stdout: ENOSPC\n  hint: [^\n]+\n$/);
  });
});

test.runIf(torture)("pipe's memory does not grow with the length of the stream", { timeout: 300_000 }, async () => {
  const paths = await world(scratch.path, 50_000, { input: { where: "x is not null" }, batchRows: 10_000 });
  const stream = await readFile(paths.input);
  const schema = schemaBytes(stream);
  const lengthened = async (name: string, rounds: number): Promise<void> => {
    const file = createWriteStream(join(scratch.path, name));
    file.write(stream.subarray(0, schema));
    for (let round = 0; round < rounds; round += 1) {
      file.write(stream.subarray(schema, -endMarker.length));
    }
    file.end(endMarker);
    await once(file, "finish");
  };
  await lengthened("long.arrows", 60);
  await lengthened("longer.arrows", 240);

  const peaks = await Promise.all(
    ["long", "longer"].map(async (name) => {
      const { stderr } = await shell('/usr/bin/time -f "peak %M" $pipe "$spec" --quiet < "$from" > /dev/null', {
        ...paths,
        from: join(scratch.path, `${name}.arrows`),
      });
      return Number(/peak (\d+)/.exec(stderr)?.[1]);
    }),
  );

  expect(peaks[1]).toBeLessThan((peaks[0] ?? 0) + 40_000);
});
