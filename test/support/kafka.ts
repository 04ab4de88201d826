import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cacheFolder } from "./build-once.mjs";
import { projectFolder } from "./cli.js";
import { fetchJars } from "./jars.js";
import { ended, lineProgram } from "./line-program.js";
import { pythonTools } from "./python-tools.js";
import { freePort } from "./s3-server.mjs";
import { until } from "./waiting.js";

const scripts = join(projectFolder, "test/support/kafka");
const tools = pythonTools("kafka", ["confluent-kafka[avro,schemaregistry]==2.16.1"]);
const jars = join(cacheFolder("kafka-4.1.0"), "jars");

/** Why there is no broker; undefined: there is one. */
export const missing = tools.missing ?? fetchJars(jars, join(scripts, "pom.xml"), "a broker of Kafka");
export const skipped = missing === undefined ? "" : ` (skipped: ${missing.split("\n")[0]})`;

export type SentRecord = readonly [
  key: string | null,
  value: string | null,
  ...headers: readonly (readonly [name: string, hex: string | null])[],
];
export type ReadRecord = readonly [
  partition: number,
  offset: number,
  key: string | null,
  value: string | null,
  timeMs: number,
];

/** A broker with a cluster of its own, and a program that does what is asked of it with another client. */
export interface Broker extends AsyncDisposable {
  /** Takes anyone. */
  readonly address: string;
  /** Takes users that log in. */
  readonly guarded: string;
  /** Encrypted; its authority is in the file `ca`. */
  readonly encrypted: string;
  readonly ca: string;
  act(act: string, ...args: readonly unknown[]): Promise<unknown>;
  /** Kills the broker, and starts it again with what it has stored: it is a new leader then. */
  restart(): Promise<void>;
  read(topic: string): Promise<readonly ReadRecord[]>;
}

/** Who may log in to `guarded`. */
export const user = { name: "alice", password: "a-password-of-tests" };

export function tokenFor(seconds: number): string {
  const now = Math.floor(Date.now() / 1000);
  const parts = [{ alg: "none" }, { sub: user.name, iat: now - 60, exp: now + seconds }];
  return `${parts.map((part) => Buffer.from(JSON.stringify(part)).toString("base64url")).join(".")}.`;
}

export async function startBroker(): Promise<Broker> {
  const folder = mkdtempSync(join(tmpdir(), "infer-batch-kafka-"));
  const ports = [await freePort(), await freePort(), await freePort(), await freePort()];
  const [plain, guarded, encrypted, controller] = ports.map((port) => `127.0.0.1:${port}`);
  makeCertificate(folder);
  const settings = settingsOf({ folder, plain, guarded, encrypted, controller } as Readonly<Record<string, string>>);
  const log = join(folder, "log");
  const out = openSync(log, "a");
  const scram = ["SCRAM-SHA-256", "SCRAM-SHA-512"].flatMap((name) => [
    "--add-scram",
    `${name}=[name=${user.name},password=${user.password}]`,
  ]);
  const args = makeBroker(folder, newId(), settings, ["--standalone", ...scram]);
  const launch = async (): Promise<ChildProcess> => {
    const child = spawn("java", args, { stdio: ["ignore", out, out] });
    await until(async () => {
      if (child.exitCode !== null) {
        throw new Error(`the broker did not start: ${readFileSync(log, "utf8")}`);
      }
      return await answers(ports[0] ?? 0);
    });
    return child;
  };
  let broker = await launch();
  const last = (): void => void broker.kill("SIGKILL");
  process.on("exit", last);
  const actor = await startActor(plain ?? "");
  const { act } = actor;
  return {
    address: plain ?? "",
    guarded: guarded ?? "",
    encrypted: encrypted ?? "",
    ca: join(folder, "cert.pem"),
    act,
    async restart() {
      await ended(broker);
      broker = await launch();
    },
    read: async (topic) => (await act("read", topic)) as readonly ReadRecord[],
    async [Symbol.asyncDispose]() {
      await Promise.all([actor[Symbol.asyncDispose](), ended(broker)]);
      process.off("exit", last);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** The id of a cluster; a dash would begin an option. */
function newId(): string {
  return `A${randomBytes(16).toString("base64url").slice(1)}`;
}

/** Makes what a broker begins with in its folder. Returns what Java starts it with. */
function makeBroker(folder: string, id: string, text: string, options: readonly string[]): readonly string[] {
  const settings = join(folder, "server.properties");
  writeFileSync(settings, text);
  const machine = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx384m", `-Dkafka.logs.dir=${folder}`];
  const java = [...machine, "-cp", join(jars, "*")];
  const format = ["kafka.tools.StorageTool", "format", "-t", id, "-c", settings, ...options];
  const formatted = spawnSync("java", [...java, ...format], { encoding: "utf8" });
  if (formatted.status !== 0) {
    throw new Error(`a broker's folder was not made: ${formatted.stdout}${formatted.stderr}`);
  }
  return [...java, "kafka.Kafka", settings];
}

/** Brokers of one cluster, each of which votes for leaders. Topics have a replica at each. */
export interface Brokers extends AsyncDisposable {
  readonly addresses: readonly string[];
  act: Broker["act"];
  /** Kills the broker that leads partition 0 of a topic. Returns what starts it again. */
  killLeader(topic: string): Promise<() => Promise<void>>;
}

export async function startBrokers(count: number): Promise<Brokers> {
  const root = mkdtempSync(join(tmpdir(), "infer-batch-kafka-"));
  const id = newId();
  const places = await Promise.all(
    Array.from({ length: count }, async (_, index) => ({
      node: index + 1,
      folder: join(root, `${index + 1}`),
      plain: `127.0.0.1:${await freePort()}`,
      controller: `127.0.0.1:${await freePort()}`,
    })),
  );
  const voters = places.map(({ node, controller }) => `${node}@${controller}`).join(",");
  const running = new Map<number, ChildProcess>();
  const starts = places.map(({ node, folder, plain, controller }) => {
    mkdirSync(folder);
    const settings = `process.roles=broker,controller
node.id=${node}
controller.quorum.voters=${voters}
listeners=PLAINTEXT://${plain},CONTROLLER://${controller}
advertised.listeners=PLAINTEXT://${plain}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=${folder}/data
num.network.threads=1
num.io.threads=2
default.replication.factor=${count}
min.insync.replicas=2
offsets.topic.replication.factor=${count}
offsets.topic.num.partitions=1
broker.session.timeout.ms=6000
auto.create.topics.enable=false
`;
    const args = makeBroker(folder, id, settings, []);
    return () => void running.set(node, spawn("java", args, { stdio: "ignore" }));
  });
  for (const start of starts) {
    start();
  }
  const last = (): void => running.forEach((broker) => void broker.kill("SIGKILL"));
  process.on("exit", last);
  const addresses = places.map(({ plain }) => plain);
  const actor = await startActor(addresses.join(","));
  return {
    addresses,
    act: actor.act,
    async killLeader(topic) {
      const leader = Number(await actor.act("leader", topic));
      const start = starts[leader - 1];
      const broker = running.get(leader);
      if (start === undefined || broker === undefined) {
        throw new Error(`broker ${leader} leads, which is none`);
      }
      const gone = new Promise((resolve) => broker.once("close", resolve));
      broker.kill("SIGKILL");
      return async () => {
        await gone;
        start();
      };
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([actor[Symbol.asyncDispose](), ...Array.from(running.values(), ended)]);
      process.off("exit", last);
      rmSync(root, { recursive: true, force: true });
    },
  };
}

async function startActor(brokers: string): Promise<Pick<Broker, "act"> & AsyncDisposable> {
  const actor = lineProgram(tools.bin, [join(scripts, "actor.py"), brokers]);
  await actor.line();
  return {
    async act(what, ...args) {
      const [done, answer] = JSON.parse(await actor.ask(JSON.stringify([what, ...args]))) as [
        done: boolean,
        answer: unknown,
      ];
      if (!done) {
        throw new Error(`${what}: ${String(answer)}`);
      }
      return answer;
    },
    [Symbol.asyncDispose]: () => actor[Symbol.asyncDispose](),
  };
}

function settingsOf(where: Readonly<Record<string, string>>): string {
  const { folder, plain, guarded, encrypted, controller } = where;
  const listeners = `PLAINTEXT://${plain},GUARDED://${guarded},ENCRYPTED://${encrypted}`;
  const login = "org.apache.kafka.common.security";
  return `process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=${controller}
listeners=${listeners},CONTROLLER://${controller}
advertised.listeners=${listeners},CONTROLLER://${controller}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT,ENCRYPTED:SSL
listener.name.guarded.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.guarded.oauthbearer.sasl.jaas.config=${login}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";
listener.name.guarded.plain.sasl.jaas.config=${login}.plain.PlainLoginModule required user_${user.name}="${user.password}";
listener.name.guarded.scram-sha-256.sasl.jaas.config=${login}.scram.ScramLoginModule required;
listener.name.guarded.scram-sha-512.sasl.jaas.config=${login}.scram.ScramLoginModule required;
listener.name.encrypted.ssl.keystore.type=PEM
listener.name.encrypted.ssl.keystore.location=${folder}/both.pem
log.dirs=${folder}/data
num.network.threads=1
num.io.threads=2
log.cleaner.backoff.ms=200
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
`;
}

function makeCertificate(folder: string): void {
  const [key, cert] = [join(folder, "key.pem"), join(folder, "cert.pem")];
  const subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"];
  const args = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out", cert];
  const made = spawnSync("openssl", [...args, ...subject], { encoding: "utf8" });
  if (made.status !== 0) {
    throw new Error(`openssl failed: ${made.stderr}`);
  }
  writeFileSync(join(folder, "both.pem"), readFileSync(key, "utf8") + readFileSync(cert, "utf8"));
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: "127.0.0.1", port });
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => {
      resolve(false);
    });
  });
}
