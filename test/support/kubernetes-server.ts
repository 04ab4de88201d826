import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { existsSync, openSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { writeFile } from "node:fs/promises";
import { get } from "node:https";
import { delimiter, join } from "node:path";
import { text } from "node:stream/consumers";
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

/** Kubernetes without machines: Jobs make pods, which never start. A test sets the state of each. */
export interface Kubernetes extends AsyncDisposable {
  /** @throws Error with what kubectl said */
  kubectl(args: readonly string[]): string;
  /**
   * Reads from the server's API: a `kubectl` for each look would take a tenth of a second of processor time.
   * @param path such as `/apis/batch/v1/namespaces/default/jobs`
   * @throws Error with the server's answer, unless its status is 200
   */
  get(path: string): Promise<unknown>;
}

const token = "secret";
/** Between two looks at the server. */
export const lookMs = 100;

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
