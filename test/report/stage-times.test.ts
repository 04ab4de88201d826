import { expect, test } from "vitest";
import { createStageTimes, secondsByStage } from "#src/report/stage-times.js";

test("stage times add up, each stage can start at the end of the last, and onStage receives each piece", () => {
  let now = 100;
  const told: string[] = [];
  const times = createStageTimes(
    () => now,
    (stage, startedMs, endedMs) => told.push(`${stage} ${startedMs}-${endedMs}`),
  );
  let since = times.nowMs();
  now = 130;
  since = times.took("decode", since);
  now = 135;
  since = times.took("pack", since);
  times.took("infer", 110, 134);
  now = 145;
  times.took("decode", since);
  expect(told).toEqual(["decode 100-130", "pack 130-135", "infer 110-134", "decode 135-145"]);
  expect(secondsByStage(times)).toEqual({
    read: 0,
    decode: 0.04,
    pack: 0.005,
    infer: 0.024,
    encode: 0,
    commit: 0,
    wait: 0,
  });
});
