import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { expectEnd, projectFolder, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { nightlyJob } from "../support/nights.js";

interface Rules {
  readonly groups: readonly { readonly rules: readonly { readonly alert: string; readonly expr: string }[] }[];
}

test("the alerts for Prometheus read metrics that a run writes, with their labels", async () => {
  const text = await readFile(join(projectFolder, "deploy/prometheus/alerts.yaml"), "utf8");
  const rules = (parse(text) as Rules).groups.flatMap((group) => group.rules);
  const { spec } = await nightlyJob(scratch.path, { name: "daily-churn", report: { metrics: "job.prom" } });
  await expectEnd(runHere(["run", spec, "--quiet"]), 0);
  const metrics = await readFile(join(scratch.path, "job.prom"), "utf8");

  expect(rules.map(({ alert }) => alert)).toEqual(["RunNotPublished", "RunHeld", "AttemptFailed"]);
  for (const { expr } of rules) {
    for (const [, name, label = ""] of expr.matchAll(/(infer_batch_\w+)(?:\{([^}]*)\})?/g)) {
      const samples = metrics.split("\n").filter((line) => line.startsWith(`${name}{`) && line.includes(label));
      expect(samples.length, `${name} ${label}`).toBeGreaterThan(0);
    }
  }
});
