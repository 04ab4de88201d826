import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { existsSync, openSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { cacheFolder } from "./build-once.mjs";
import { scratchFolder } from "./job.js";
import { freePort } from "./s3-server.mjs";
import { until } from "./waiting.js";

/** As in test/deploy/build-kubernetes.sh, which puts the programs there. */
const programs = process.env["INFER_BATCH_KUBERNETES"] ?? cacheFolder("kubernetes-v1.34.1");
const env = { ...process.env, PATH: [programs, process.env["PATH"]].join(delimiter) };

/** Why no control plane can be started here. */
export function whatKubernetesLacks(): string | undefined {
  const missing = ["etcd", "kube-apiserver", "kube-controller-manager"].filter(
    (name) => !existsSync(join(programs, name)),
  );
  if (missing.length > 0) {
    return `no ${missing.join(", ")} in ${programs}: test/deploy/build-kubernetes.sh builds them`;
  }
  return spawnSync("kubectl", ["version", "--client"], { env }).status === 0 ? undefined : "no kubectl";
}

/** Kubernetes without machines: Jobs make pods, which nobody starts. A test says what became of each. */
export interface Kubernetes extends AsyncDisposable {
  /** @throws Error with what kubectl said */
  kubectl(args: readonly string[]): string;
  /** What `kubectl` prints as JSON. */
  get(args: readonly string[]): unknown;
}

export async function startKubernetes(): Promise<Kubernetes> {
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
  const attempt = (args: readonly string[]): ReturnType<typeof spawnSync> =>
    spawnSync("kubectl", args, { env: { ...env, KUBECONFIG: at("kubeconfig"), HOME: scratch.path }, encoding: "utf8" });
  const kubectl = (args: readonly string[]): string => {
    const { status, stdout, stderr } = attempt(args);
    if (status !== 0) {
      throw new Error(`kubectl ${args.join(" ")}: ${String(stderr)}`);
    }
    return String(stdout);
  };

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
  await until(() => attempt(["get", "--raw", "/readyz"]).status === 0);
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
    get: (args) => JSON.parse(kubectl(["get", "--output=json", ...args])),
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

/** Who may do everything, and keys that the server signs with. */
async function writeAccess(at: (name: string) => string, port: number): Promise<void> {
  const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  await writeFile(at("public.pem"), publicKey.export({ type: "spki", format: "pem" }));
  await writeFile(at("private.pem"), privateKey.export({ type: "pkcs8", format: "pem" }));
  await writeFile(at("tokens"), "secret,admin,admin,system:masters\n");
  await writeFile(
    at("kubeconfig"),
    JSON.stringify({
      apiVersion: "v1",
      kind: "Config",
      clusters: [{ name: "here", cluster: { server: `https://127.0.0.1:${port}`, "insecure-skip-tls-verify": true } }],
      users: [{ name: "admin", user: { token: "secret" } }],
      contexts: [{ name: "here", context: { cluster: "here", user: "admin" } }],
      "current-context": "here",
    }),
  );
}
