import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { existsSync, openSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { get } from "node:https";
import { delimiter, join } from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { cacheFolder } from "../support/build-once.mjs";
import { deployFolder, finalCodes, retriedCodes } from "../support/deploy.js";
import { scratchFolder } from "../support/job.js";
import { manifestFolders } from "../support/pod.js";
import { freePort } from "../support/s3-server.mjs";
import { until } from "../support/waiting.js";

/** As in test/deploy/build-kubernetes.sh, which puts the programs there. */
const programs = process.env["INFER_BATCH_KUBERNETES"] ?? cacheFolder("kubernetes-v1.34.1");
const env = { ...process.env, PATH: [programs, process.env["PATH"]].join(delimiter) };

function whatKubernetesLacks(): string | undefined {
  const missing = ["etcd", "kube-apiserver", "kube-controller-manager"].filter(
    (name) => !existsSync(join(programs, name)),
  );
  if (missing.length > 0) {
    return `no ${missing.join(", ")} in ${programs}: test/deploy/build-kubernetes.sh builds them`;
  }
  return spawnSync("kubectl", ["version", "--client"], { env }).status === 0 ? undefined : "no kubectl";
}

/** Kubernetes without machines: Jobs make pods, which never start. A test sets the state of each. */
interface Kubernetes extends AsyncDisposable {
  kubectl(args: readonly string[]): string;
  /** Reads from the server's API: `kubectl` would take a tenth of a second of processor time for each look. */
  get(path: string): Promise<unknown>;
}

const token = "secret";
const lookMs = 100;

async function startKubernetes(): Promise<Kubernetes> {
  const scratch = await scratchFolder();
  const at = (name: string): string => join(scratch.path, name);
  const [clients, peers, secure, health] = [await freePort(), await freePort(), await freePort(), await freePort()];
  const store = `http://127.0.0.1:${clients}`;
  await writeAccess(at, secure);

  const running: ChildProcess[] = [];
  const start = (name: string, args: readonly string[]): void => {
    const log = openSync(at(`${name}.log`), "w");
    running.push(spawn(name, args, { env, stdio: ["ignore", log, log] }));
  };
  const kubectl = (args: readonly string[]): string => {
    const access = { ...env, KUBECONFIG: at("kubeconfig"), HOME: scratch.path };
    const { status, stdout, stderr } = spawnSync("kubectl", args, { env: access, encoding: "utf8" });
    if (status !== 0) {
      throw new Error(`kubectl ${args.join(" ")}: ${stderr}`);
    }
    return stdout;
  };
  const read = (path: string): Promise<string> => readFrom(`https://127.0.0.1:${secure}${path}`);

  start("etcd", [
    `--data-dir=${at("etcd")}`,
    `--listen-client-urls=${store}`,
    `--advertise-client-urls=${store}`,
    `--listen-peer-urls=http://127.0.0.1:${peers}`,
  ]);
  start("kube-apiserver", [
    `--etcd-servers=${store}`,
    "--bind-address=127.0.0.1",
    "--advertise-address=127.0.0.1",
    `--secure-port=${secure}`,
    `--cert-dir=${at("certificates")}`,
    `--service-account-key-file=${at("public.pem")}`,
    `--service-account-signing-key-file=${at("private.pem")}`,
    "--service-account-issuer=https://localhost",
    `--token-auth-file=${at("tokens")}`,
    "--service-cluster-ip-range=10.0.0.0/24",
    "--disable-admission-plugins=ServiceAccount",
    "--endpoint-reconciler-type=none",
  ]);
  const isReady = (): Promise<boolean> =>
    read("/readyz").then(
      () => true,
      () => false,
    );
  await until(isReady, lookMs);
  start("kube-controller-manager", [
    `--kubeconfig=${at("kubeconfig")}`,
    "--controllers=job,cronjob",
    "--leader-elect=false",
    "--bind-address=127.0.0.1",
    `--secure-port=${health}`,
    `--cert-dir=${at("certificates")}`,
  ]);
  return {
    kubectl,
    get: async (path) => JSON.parse(await read(path)) as unknown,
    async [Symbol.asyncDispose]() {
      for (const child of running.toReversed()) {
        const exited = once(child, "exit");
        if (child.kill("SIGKILL")) {
          await exited;
        }
      }
      await scratch[Symbol.asyncDispose]();
    },
  };
}

/** Reads what the server answers. It has made its certificate itself. */
async function readFrom(url: string): Promise<string> {
  const options = { rejectUnauthorized: false, headers: { authorization: `Bearer ${token}` } };
  const [answer] = (await once(get(url, options), "response")) as [IncomingMessage];
  const body = await text(answer);
  if (answer.statusCode !== 200) {
    throw new Error(`GET ${url}: ${answer.statusCode} ${body}`);
  }
  return body;
}

/** Who may do everything, and keys that the server signs with. */
async function writeAccess(at: (name: string) => string, port: number): Promise<void> {
  const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  await writeFile(at("public.pem"), publicKey.export({ type: "spki", format: "pem" }));
  await writeFile(at("private.pem"), privateKey.export({ type: "pkcs8", format: "pem" }));
  await writeFile(at("tokens"), `${token},admin,admin,system:masters\n`);
  await writeFile(
    at("kubeconfig"),
    JSON.stringify({
      apiVersion: "v1",
      kind: "Config",
      clusters: [{ name: "here", cluster: { server: `https://127.0.0.1:${port}`, "insecure-skip-tls-verify": true } }],
      users: [{ name: "admin", user: { token } }],
      contexts: [{ name: "here", context: { cluster: "here", user: "admin" } }],
      "current-context": "here",
    }),
  );
}

const folder = join(deployFolder, "kubernetes");
const missing = whatKubernetesLacks();

const job = z.object({
  status: z.object({
    failed: z.int().default(0),
    failedIndexes: z.string().default(""),
    conditions: z.array(z.object({ type: z.string(), reason: z.string().optional() })).default([]),
  }),
});
const pods = z.object({
  items: z.array(
    z.object({
      metadata: z.object({
        name: z.string(),
        annotations: z.record(z.string(), z.string()),
        labels: z.record(z.string(), z.string()),
      }),
      spec: z.object({
        containers: z.tuple([
          z.object({
            env: z.array(
              z.object({
                name: z.string(),
                valueFrom: z.object({ fieldRef: z.object({ fieldPath: z.string() }).optional() }).optional(),
              }),
            ),
          }),
        ]),
      }),
      status: z.object({ phase: z.string() }),
    }),
  ),
});
const jobsPath = "/apis/batch/v1/namespaces/default/jobs";
const jobs = z.object({ items: z.array(z.object({ metadata: z.object({ name: z.string() }) })) });

type Became = "Job failed" | "index failed" | "tried again" | "tried again, not counted";

describe.skipIf(missing !== undefined)(
  `a Kubernetes server${missing === undefined ? "" : ` (skipped: ${missing})`}`,
  () => {
    let server: Kubernetes;
    beforeAll(async () => {
      server = await startKubernetes();
      server.kubectl(["apply", "--kustomize", join(folder, "base")]);
    });
    afterAll(() => server[Symbol.asyncDispose]());

    test.each(manifestFolders)("takes %s", (path) => {
      const said = server.kubectl([
        "apply",
        "--dry-run=server",
        "--validate=strict",
        "--kustomize",
        join(folder, path),
      ]);
      expect(said).toContain("cronjob.batch/daily-churn ");
    });

    test("a Kubernetes server refuses manifests that the schema accepts", async () => {
      await using scratch = await scratchFolder();
      const file = join(scratch.path, "cronjob.yaml");
      const manifestText = server.kubectl(["kustomize", join(folder, "base")]);
      await writeFile(file, manifestText.replace("restartPolicy: Never", "restartPolicy: Always"));
      expect(() => server.kubectl(["create", "--dry-run=server", "--filename", file])).toThrow(/restartPolicy/);
    });

    const podsOf = async (name: string): Promise<z.infer<typeof pods>["items"]> => {
      const selector = encodeURIComponent(`batch.kubernetes.io/job-name=${name}`);
      return pods.parse(await server.get(`/api/v1/namespaces/default/pods?labelSelector=${selector}`)).items;
    };
    const podsAt = async (name: string, index: number): Promise<z.infer<typeof pods>["items"]> => {
      const label = "batch.kubernetes.io/job-completion-index";
      return (await podsOf(name)).filter(({ metadata }) => metadata.labels[label] === String(index));
    };

    /** As README.md has it; waits until its four pods are there. */
    const begin = async (name: string): Promise<void> => {
      server.kubectl(["create", "job", "--from=cronjob/daily-churn", name]);
      const indexes = async (): Promise<number[]> =>
        (await podsOf(name)).map(({ metadata }) => Number(metadata.labels["batch.kubernetes.io/job-completion-index"]));
      await until(async () => (await indexes()).toSorted((one, other) => one - other).join() === "0,1,2,3", lookMs);
    };

    /** As the kubelet would tell it. */
    const end = async (name: string, exitCode: number, conditions: readonly object[] = []): Promise<void> => {
      const [pod] = await podsAt(name, 0);
      const terminated = { exitCode, reason: "Error" };
      const container = { name: "infer-batch", image: "", imageID: "", ready: false, restartCount: 0 };
      const status = { phase: "Failed", conditions, containerStatuses: [{ ...container, state: { terminated } }] };
      const patch = ["--subresource=status", "--type=merge", "--patch", JSON.stringify({ status })];
      server.kubectl(["patch", "pod", pod?.metadata.name ?? "", ...patch]);
    };

    const look = async (name: string): Promise<Became | undefined> => {
      const { status } = job.parse(await server.get(`${jobsPath}/${name}`));
      if (status.conditions.some(({ type, reason }) => type === "FailureTarget" && reason === "PodFailurePolicy")) {
        return "Job failed";
      }
      if (status.failedIndexes !== "") {
        return "index failed";
      }
      const next = (await podsAt(name, 0)).find(({ status: { phase } }) => phase === "Pending")?.metadata.annotations;
      switch (next?.["batch.kubernetes.io/job-index-failure-count"]) {
        case undefined:
          return undefined;
        case "0":
          return "tried again, not counted";
        default:
          return "tried again";
      }
    };

    const drained = [{ type: "DisruptionTarget", status: "True" }];
    const ends: readonly { code: number; conditions?: readonly object[]; expected: Became }[] = [
      ...finalCodes.map((code) => ({
        code,
        expected: code === 65 ? ("index failed" as const) : ("Job failed" as const),
      })),
      ...retriedCodes.map((code) => ({ code, expected: "tried again" as const })),
      { code: 143, conditions: drained, expected: "tried again, not counted" },
    ];

    // Together: Kubernetes waits ten seconds before it tries again.
    test.concurrent.for(ends)("after exit code $code: $expected", async ({ code, conditions, expected }) => {
      const name = `daily-churn-${code}-${conditions === undefined ? "alone" : "drained"}-2026-01-31`;
      await begin(name);
      await end(name, code, conditions);
      await until(async () => (await look(name)) !== undefined, lookMs);
      expect(await look(name)).toBe(expected);
    });

    test("a Kubernetes server names the Jobs of a CronJob by minutes, and pods derive their day from this name", async () => {
      const changes = { spec: { schedule: "* * * * *" } };
      const dueMs = Math.floor(Date.now() / 60_000) * 60_000;
      const last = { status: { lastScheduleTime: new Date(dueMs - 600_000).toISOString().replace(/\.\d+/, "") } };
      server.kubectl(["patch", "cronjob", "daily-churn", "--patch", JSON.stringify(changes)]);
      const status = ["--subresource=status", "--type=merge", "--patch", JSON.stringify(last)];
      server.kubectl(["patch", "cronjob", "daily-churn", ...status]);
      const made = async (): Promise<string[]> =>
        jobs
          .parse(await server.get(jobsPath))
          .items.map(({ metadata }) => metadata.name)
          .filter((name) => /^daily-churn-\d+$/.test(name));
      await until(async () => (await made()).length > 0, lookMs);
      const [name = ""] = await made();
      expect(Number(name.slice("daily-churn-".length)) - dueMs / 60_000).toBeOneOf([0, 1]);
      await until(async () => (await podsAt(name, 3)).length === 1, lookMs);
      const [pod] = await podsAt(name, 3);
      const path = pod?.spec.containers[0].env.find((variable) => variable.name === "JOB_NAME")?.valueFrom?.fieldRef;
      const [, label = ""] = /^metadata\.labels\['(.*)'\]$/.exec(path?.fieldPath ?? "") ?? [];
      expect(pod?.metadata.labels[label]).toBe(name);
    });
  },
);
