import { expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { fewRows, heldNight, lastJson, nightlyJob } from "../support/nights.js";

/** The date of the latest held run that a text names, and what it says of the others. */
const saidOf = (text: string): (string | undefined)[] => {
  const line = text.split("\n").filter((one) => one.includes("is held by its checks; to publish it:"));
  expect(line.length).toBeLessThan(2);
  const found = / approve .* --param ds=(\S+) .*?; to throw it away: [^;]*(?:; (.*))?$/.exec(line[0] ?? "");
  return found?.slice(1) ?? [];
};

test("status and run name the latest run that is held, with its commands, and count the others in the same sentence with the command that lists them", async () => {
  const nights = await nightlyJob(scratch.path);
  await heldNight(nights);
  const listing = `infer-batch history ${nights.spec}`;
  const status = async (): Promise<unknown[]> => saidOf((await nights.night("status", "2026-12-24")).stdout);
  expect(await status()).toEqual(["2026-11-21", undefined]);
  expect((await nights.night("run", "2026-11-22")).code).toBe(67);
  expect(await status()).toEqual(["2026-11-22", `1 more run is held; to list them: ${listing}`]);
  expect((await nights.night("run", "2026-11-23")).code).toBe(67);

  await nights.rewrite({ ...fewRows, input: { where: "id < 50", columns: { s1: "if(id = 30, NULL, s1)" } } });
  expect((await nights.night("run", "2026-11-19")).code).toBe(65); // it is planned, and not finished
  const { stderr } = await nights.night("run", "2026-11-25");
  const rest = `2 more runs are held, 1 more run is not finished; to list them: ${listing}`;
  expect(saidOf(stderr)).toEqual(["2026-11-23", rest]);
  const { unfinished } = lastJson(await nights.night("status", "2026-12-24", "--json")) as { unfinished: unknown[] };
  expect(unfinished).toHaveLength(5);
  expect(await runHere(listing.split(" ").slice(1))).toMatchObject({ code: 0 });
});
