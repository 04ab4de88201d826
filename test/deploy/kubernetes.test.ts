import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { chmod, cp, mkdir, readFile, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { findWorker } from "#src/job/attempt.js";
import { expectEnd, projectFolder, runHere } from "../support/cli.js";
import { finalCodes, retriedCodes } from "../support/deploy.js";
import { scratch, scratchFolder } from "../support/job.js";
import { kustomized, type Manifest } from "../support/kustomize.js";
import { nightlyJob } from "../support/nights.js";
import { manifests as folder, manifestFolders as folders, jobOf } from "../support/pod.js";
import { validators } from "../support/validators.js";

function byKind(one: Manifest, other: Manifest): number {
  return one.kind.localeCompare(other.kind);
}

/** What kubectl makes of a folder, without the digest that it puts behind the names of ConfigMaps. */
function madeByKubectl(path: string): Manifest[] {
  const { stdout } = spawnSync("kubectl", ["kustomize", path], { encoding: "utf8" });
  return stdout
    .split(/^---\n/m)
    .map((text) => parse(text.replaceAll(/(name: daily-churn)-[0-9a-z]{10}$/gm, "$1")) as Manifest)
    .toSorted(byKind);
}

const kubectl = spawnSync("kubectl", ["version", "--client"]).status === 0;

describe("the manifests", () => {
  test.skipIf(validators.missing !== undefined)(`keep to Kubernetes' schema${validators.skipped}`, async () => {
    const wrong = JSON.parse(
      JSON.stringify(kustomized(join(folder, "base"))[0]).replace("backoffLimitPerIndex", "backoffLimitPerIndx"),
    ) as Manifest;
    const sets = {
      ...Object.fromEntries(folders.map((path) => [path, kustomized(join(folder, path))])),
      wrong: [wrong],
    };
    const files: string[] = [];
    for (const [path, manifests] of Object.entries(sets)) {
      for (const manifest of manifests) {
        const file = `${path.replaceAll("/", "-")}-${manifest.kind}.json`;
        await writeFile(join(scratch.path, file), JSON.stringify(manifest));
        files.push(file);
      }
    }

    const { stdout, stderr } = spawnSync(join(validators.bin, "kubernetes-validate"), ["--strict", ...files], {
      cwd: scratch.path,
      encoding: "utf8",
    });

    expect(`${stdout}${stderr}`).toMatchInlineSnapshot(`
      "INFO base-CronJob.json passed for resource cronjob/daily-churn against version 1.37
      INFO base-ConfigMap.json passed for resource configmap/daily-churn against version 1.37
      INFO overlays-cloud-identity-CronJob.json passed for resource cronjob/daily-churn against version 1.37
      INFO overlays-cloud-identity-ConfigMap.json passed for resource configmap/daily-churn against version 1.37
      INFO overlays-cloud-identity-ServiceAccount.json passed for resource serviceaccount/daily-churn against version 1.37
      INFO overlays-gpu-CronJob.json passed for resource cronjob/daily-churn against version 1.37
      INFO overlays-gpu-ConfigMap.json passed for resource configmap/daily-churn against version 1.37
      INFO overlays-kueue-CronJob.json passed for resource cronjob/daily-churn against version 1.37
      INFO overlays-kueue-ConfigMap.json passed for resource configmap/daily-churn against version 1.37
      INFO overlays-postgres-CronJob.json passed for resource cronjob/daily-churn against version 1.37
      INFO overlays-postgres-ConfigMap.json passed for resource configmap/daily-churn against version 1.37
      INFO overlays-web-identity-CronJob.json passed for resource cronjob/daily-churn against version 1.37
      INFO overlays-web-identity-ConfigMap.json passed for resource configmap/daily-churn against version 1.37
      INFO overlays-web-identity-ServiceAccount.json passed for resource serviceaccount/daily-churn against version 1.37
      ERROR wrong-CronJob.json did not validate for resource cronjob/daily-churn against version 1.37: spec.jobTemplate.spec: Additional properties are not allowed ('backoffLimitPerIndx' was unexpected)
      "
    `);
  });

  test.each(folders)("%s: as many workers as pods", (path) => {
    const { job, env } = jobOf(path);
    expect(job.parallelism).toBe(job.completions);
    expect(findWorker(undefined, { ...env, JOB_COMPLETION_INDEX: "0" })).toEqual({ index: 0, count: job.completions });
  });

  test("each code that a run can end with is met", () => {
    const { rules } = jobOf("base").job.podFailurePolicy;
    const actions = rules.flatMap(({ action, onExitCodes }) =>
      (onExitCodes?.values ?? []).map((code) => [code, action]),
    );
    expect(Object.fromEntries(actions)).toEqual({
      ...Object.fromEntries(finalCodes.map((code) => [code, code === 65 ? "FailIndex" : "FailJob"])),
      ...Object.fromEntries(retriedCodes.map((code) => [code, "Count"])),
    });
    expect(rules[0]).toMatchObject({ action: "Ignore" }); // a pod that is drained ends with 143
  });

  test("67, which a person decides about, ends the Job in each folder", () => {
    for (const path of folders) {
      expect(jobOf(path).job.podFailurePolicy).toEqual(jobOf("base").job.podFailurePolicy);
    }
  });

  test.each(folders)("%s: its pods have keys that must be there, or a service account in their place", (path) => {
    const { container, job } = jobOf(path);
    const account = job.template.spec.serviceAccountName;
    expect(container.envFrom).toEqual(account === undefined ? [{ secretRef: { name: "infer-batch-s3" } }] : undefined);
    const accounts = kustomized(join(folder, path)).filter(({ kind }) => kind === "ServiceAccount");
    expect(accounts.map(({ metadata }) => metadata.name)).toEqual(account === undefined ? [] : [account]);
  });

  test.each(["cloud-identity", "web-identity"])("%s may stand in place of the base", async (identity) => {
    await cp(folder, scratch.path, { recursive: true });
    for (const path of ["overlays/gpu", "overlays/postgres"] as const) {
      const file = join(scratch.path, path, "kustomization.yaml");
      await writeFile(file, (await readFile(file, "utf8")).replace("../../base", `../${identity}`));
      const { container, env, job } = jobOf(path, scratch.path);
      expect(container.envFrom).toBeUndefined();
      expect(job.template.spec.serviceAccountName).toBe("daily-churn");
      expect(Object.keys(env)).toEqual(expect.arrayContaining(["AWS_REGION", ...Object.keys(jobOf(path).env)]));
      if (kubectl) {
        expect(madeByKubectl(join(scratch.path, path))).toEqual(kustomized(join(scratch.path, path)).toSorted(byKind));
      }
    }
  });

  test("the time for which Kubernetes retries a worker is the documented one", () => {
    // Kubernetes 1.34, pkg/controller/job: DefaultJobPodFailureBackOff, doubled up to MaxJobPodFailureBackOff.
    const waits = Array.from({ length: jobOf("base").job.backoffLimitPerIndex }, (_, index) =>
      Math.min(10 * 2 ** index, 600),
    );
    const minutes = Math.floor(waits.reduce((sum, seconds) => sum + seconds) / 60);
    for (const file of ["base/cronjob.yaml", "README.md"]) {
      const text = readFileSync(join(folder, file), "utf8");
      expect(/10 min(?:utes)?: about (\d+) minutes in all/.exec(text)?.[1]).toBe(String(minutes));
    }
  });

  test("overlays change what they are there for", () => {
    expect(jobOf("overlays/gpu").container).toMatchObject({
      image: "registry.example.org/infer-batch:0.1.0-gpu",
      resources: { limits: { "nvidia.com/gpu": "1", memory: "16Gi", "ephemeral-storage": "12Gi" } },
    });
    expect(Object.keys(jobOf("overlays/postgres").env)).toEqual(["DATABASE_URL", ...Object.keys(jobOf("base").env)]);
  });

  test.skipIf(!kubectl).each(folders)("%s is what kubectl makes of it", (path) => {
    expect(madeByKubectl(join(folder, path))).toEqual(kustomized(join(folder, path)).toSorted(byKind));
  });
});

async function start(given: NodeJS.ProcessEnv): Promise<{ code: number | null; said: string; why: string }> {
  await using own = await scratchFolder();
  const bin = join(own.path, "bin");
  await mkdir(bin);
  await writeFile(join(bin, "infer-batch"), '#!/bin/sh\nprintf "%s\\n" "$@"\n');
  await chmod(join(bin, "infer-batch"), 0o755);
  const { container, env } = jobOf("base");
  const [program, ...args] = [...container.command, ...container.args];
  const { status, stdout, stderr } = spawnSync(program, args, {
    encoding: "utf8",
    env: { ...env, ...given, PATH: [bin, process.env["PATH"]].join(delimiter) },
  });
  return { code: status, said: stdout, why: stderr };
}

describe("the command of a pod", () => {
  test.each([
    { JOB_NAME: `daily-churn-${Date.UTC(2026, 10, 21, 2, 10) / 60_000}`, ds: "2026-11-21" },
    { JOB_NAME: `daily-churn-${Date.UTC(2026, 11, 31, 23, 59) / 60_000}`, ds: "2026-12-31" },
    { JOB_NAME: "by-hand", DS: "2026-01-31", ds: "2026-01-31" },
  ])("of Job $JOB_NAME scores $ds", async ({ ds, ...env }) => {
    const { code, said } = await start(env);
    expect([code, said.split("\n").slice(0, 4)]).toEqual([
      0,
      ["run", "/etc/infer-batch/job.yaml", "--param", `ds=${ds}`],
    ]);
  });

  test.each(["by-hand", "daily-churn-2026-01-31", "another-29384850"])(
    "of Job %s, whose name tells no time, ends with 64 and says why",
    async (JOB_NAME) => {
      expect(await start({ JOB_NAME })).toEqual({
        code: 64,
        said: "",
        why: expect.stringContaining(JOB_NAME.replace("daily-churn-", "")),
      });
    },
  );

  test("takes the day in the zone of the schedule", () => {
    const { env, timeZone } = jobOf("base");
    expect(env["TZ"]).toBe(timeZone);
  });
});

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
