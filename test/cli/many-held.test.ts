import { expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { fewRows, heldNight, lastJson, nightlyJob } from "../support/nights.js";

/** The date of the held run that a line is about. */
const heldOn = (line: string): string | undefined =>
  /is held by its checks; to publish it: infer-batch approve .* --param ds=(\S+) /.exec(line)?.[1];

const linesOf = (text: string): string[] => text.split("\n").filter((line) => /held by|to list them/.test(line));

test("of many runs that are held, status and run name the latest three in full, and the others in one line with the command that lists them", async () => {
  const nights = await nightlyJob(scratch.path);
  await heldNight(nights);
  const status = async (): Promise<string[]> => linesOf((await nights.night("status", "2026-12-24")).stdout);
  for (const day of [22, 23, 24]) {
    expect((await status()).map(heldOn)).toEqual(
      [21, 22, 23].filter((one) => one < day).map((one) => `2026-11-${one}`),
    );
    expect((await nights.night("run", `2026-11-${day}`)).code).toBe(67);
  }
  const listing = `infer-batch history ${nights.spec}`;
  const rest = `1 more run is held by its checks (ds=2026-11-21); to list them: ${listing}`;
  expect((await status()).map((line) => heldOn(line) ?? line)).toEqual([
    "2026-11-22",
    "2026-11-23",
    "2026-11-24",
    rest,
  ]);

  await nights.rewrite({ ...fewRows, input: { where: "id < 50", columns: { s1: "if(id = 30, NULL, s1)" } } });
  expect((await nights.night("run", "2026-11-19")).code).toBe(65); // it is planned, and not finished
  const two = `2 more runs are held by their checks or not finished (ds=2026-11-19, ds=2026-11-21); to list them: ${listing}`;
  const warned = linesOf((await nights.night("run", "2026-11-25")).stderr);
  expect(warned.map((line) => heldOn(line) ?? line.replace(/^.*WARN: /, ""))).toEqual([
    "2026-11-22",
    "2026-11-23",
    "2026-11-24",
    two,
  ]);
  const { unfinished } = lastJson(await nights.night("status", "2026-12-24", "--json")) as { unfinished: unknown[] };
  expect(unfinished).toHaveLength(6);
  expect(await runHere(listing.split(" ").slice(1))).toMatchObject({ code: 0 });
});
