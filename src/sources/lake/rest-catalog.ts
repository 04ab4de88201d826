import { isRecord } from "../../base/guards.js";
import { assertNever, JobError, orError, reworded } from "../../base/errors.js";
import {
  type HttpAnswer,
  type HttpEndpoint,
  postForm,
  postJson,
  readOwnJson,
  withoutValues,
} from "../../base/http/http.js";
import { didYouMean } from "../../base/suggest.js";
import { printable } from "../../base/texts.js";
import { z } from "../../base/zod.js";
import type { GivenCredentials } from "../../stores/objects/protocol.js";

/* Iceberg's REST protocol, as far as a table is read, and rows are added: https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml */

/** How requests to a catalog are authorised. Secrets are read when they are needed: they may be rotated. */
export type CatalogLogin =
  | { readonly kind: "none" }
  | { readonly kind: "token"; readonly token: () => Promise<string> }
  | {
      readonly kind: "oauth2";
      readonly clientId: string;
      readonly clientSecret: () => Promise<string>;
      readonly scope: string;
      /** undefined: the catalog gives out tokens. */
      readonly tokenUrl: string | undefined;
    }
  | { readonly kind: "signed"; readonly sign: SignRequest };

type SignRequest = (request: {
  readonly method: "GET" | "POST";
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: readonly Uint8Array[];
}) => Promise<Readonly<Record<string, string>>>;

export interface CatalogOptions extends Pick<HttpEndpoint, "retry" | "signal" | "findProxy"> {
  /** Without `/v1`. */
  readonly url: string;
  readonly warehouse: string | undefined;
  readonly login: CatalogLogin;
  /** Whether the catalog is asked for credentials of the table's store. */
  readonly isVending: boolean;
  /** The part of the spec that names catalog and table, for hints. */
  readonly of: "input" | "output.iceberg";
}

export interface CatalogName {
  readonly namespace: readonly string[];
  readonly name: string;
}

/** A table as its catalog has it. */
export interface CatalogTable {
  readonly uuid: string;
  /** The URI of its metadata file. */
  readonly metadata: string;
  readonly location: string;
  /** How the catalog says that S3 is reached; what it does not say is undefined. */
  readonly storage: {
    readonly endpoint: string | undefined;
    readonly region: string | undefined;
    readonly pathStyle: boolean | undefined;
  };
  /** What the catalog gives out for the table; undefined: nothing. */
  readonly credentials: GivenCredentials | undefined;
}

/** Loads a table as it is now. @throws JobError FILE_MISSING, PERMISSION, SPEC_INVALID, NETWORK */
export type LoadTable = () => Promise<CatalogTable>;

/** A table of a catalog, which need not exist. */
export interface NamedTable {
  readonly load: LoadTable;
  /**
   * Changes the table, if the requirements hold. The texts are JSON.
   * @returns false: they do not hold, or another change came first
   * @throws Unsettled where it may have been changed all the same; JobError as `LoadTable`
   */
  commit(change: { readonly requirements: string; readonly updates: string }): Promise<boolean>;
  /** Creates the table, unless there is one. The texts are JSON. @throws as `commit` */
  create(made: { readonly schema: string; readonly partitionSpec: string }): Promise<void>;
}

const texts = z
  .record(z.string(), z.unknown())
  .nullish()
  .transform((all) =>
    Object.fromEntries(
      Object.entries(all ?? {}).flatMap(([key, value]) => (typeof value === "string" ? [[key, value]] : [])),
    ),
  );
type Texts = z.output<typeof texts>;

const configAnswer = z.object({ defaults: texts, overrides: texts });
const tokenAnswer = z.object({ access_token: z.string().min(1), expires_in: z.number().optional() });
const tableAnswer = z.object({
  "metadata-location": z.string().nullish(),
  metadata: z.object({ "table-uuid": z.string().min(1), location: z.string() }),
  config: texts,
  "storage-credentials": z.array(z.object({ prefix: z.string(), config: texts })).nullish(),
});
const tablesAnswer = z.object({ identifiers: z.array(z.object({ name: z.string() })) });
const namespacesAnswer = z.object({ namespaces: z.array(z.array(z.string())) });

/** Opens a table of a catalog; nothing is asked before it is used. @param doing the act that messages begin with */
export function catalogTable(options: CatalogOptions, { namespace, name }: CatalogName, doing: string): NamedTable {
  const { url, warehouse, isVending } = options;
  const base = url.replace(/\/+$/, "");
  const ask = askerOf(options, base, doing);

  const askConfig = async (): Promise<Texts> => {
    // Not as a form has it: what is signed has no "+" for a space.
    const query = warehouse === undefined ? "" : `?warehouse=${encodeURIComponent(warehouse)}`;
    const { defaults, overrides } = await ask(`${base}/v1/config${query}`, configAnswer);
    const config = { ...defaults, ...overrides };
    const elsewhere = overrides["uri"];
    // The login was given for the host of the spec.
    if (elsewhere !== undefined && (!URL.canParse(elsewhere) || new URL(elsewhere).origin !== new URL(base).origin)) {
      throw new JobError("SPEC_INVALID", `${doing}: the catalog says that it is at ${printable(elsewhere)}`, {
        hint: "write that URL as input.catalog.url: what is given for one host is not sent to another",
      });
    }
    return elsewhere === undefined ? config : { ...config, uri: elsewhere.replace(/\/+$/, "") };
  };

  const askPlaces = async (): Promise<{ config: Texts; root: string; tables: string; at: string }> => {
    const config = await askConfig();
    const { uri = base, prefix = "", "namespace-separator": separator = "%1F" } = config;
    const root = `${uri}/v1${prefix === "" ? "" : `/${prefix}`}/namespaces`;
    const tables = `${root}/${namespace.map(encodeURIComponent).join(separator)}/tables`;
    return { config, root, tables, at: `${tables}/${encodeURIComponent(name)}` };
  };

  return {
    load: hinting(async () => {
      const { config, root, tables, at } = await askPlaces();
      const extra: Texts = isVending ? { "x-iceberg-access-delegation": "vended-credentials" } : {};
      const answer = await ask(`${at}?snapshots=refs`, tableAnswer, { extra }).catch(async (error: unknown) => {
        throw error instanceof JobError && error.code === "FILE_MISSING"
          ? await missing(error, { root, tables, namespace, name })
          : error;
      });
      return tableOf(answer, config, doing);
    }),
    commit: hinting(async ({ requirements, updates }) => {
      const { at } = await askPlaces();
      const body = `{"requirements":${requirements},"updates":${updates}}`;
      return await unlessConflict(() => ask(at, z.unknown(), { body }));
    }),
    create: hinting(async ({ schema, partitionSpec }) => {
      const { tables } = await askPlaces();
      const body = `{"name":${JSON.stringify(name)},"schema":${schema},"partition-spec":${partitionSpec},"properties":{}}`;
      await unlessConflict(() => ask(tables, z.unknown(), { body }));
    }),
  };

  /** Has hints of errors name the keys of the spec that the catalog is named by. */
  function hinting<Args extends readonly unknown[], T>(
    work: (...args: Args) => Promise<T>,
  ): (...args: Args) => Promise<T> {
    return async (...args) => {
      try {
        return await work(...args);
      } catch (error) {
        throw error instanceof JobError
          ? reworded(error, { hint: error.hint?.replaceAll("input.", `${options.of}.`) })
          : error;
      }
    };
  }

  /** Says which tables or namespaces there are, if the catalog tells. */
  async function missing(
    refusal: JobError,
    { root, tables, namespace: levels, name: wanted }: CatalogName & { readonly root: string; readonly tables: string },
  ): Promise<JobError> {
    const there = await ask(tables, tablesAnswer).then(
      ({ identifiers }) => ({
        of: `tables of namespace ${levels.join(".")}:`,
        names: identifiers.map((each) => each.name),
        wanted,
      }),
      () => undefined,
    );
    const listed =
      there ??
      (await ask(root, namespacesAnswer).then(
        ({ namespaces }) => ({
          of: "its namespaces:",
          names: namespaces.map((each) => each.join(".")),
          wanted: levels.join("."),
        }),
        () => undefined,
      ));
    const { of = "", names = [] } = listed ?? {};
    const shown = names.slice(0, shownNames).map(printable).join(", ");
    const more = names.length > shownNames ? ` and ${names.length - shownNames} more` : "";
    const has = listed === undefined ? "" : `; ${of} ${shown === "" ? "none" : shown}${more}`;
    const table = [...levels, wanted].map(printable).join(".");
    return new JobError("FILE_MISSING", `${doing}: the catalog ${url} has no table ${table}${has}`, {
      hint: `write input.table as namespace.table, as the catalog has it${didYouMean(listed?.wanted ?? "", names)}`,
      cause: refusal,
    });
  }
}

const shownNames = 10;

/** false: the catalog says that another act came first. */
async function unlessConflict(act: () => Promise<unknown>): Promise<boolean> {
  return !((await orError(act, ({ code }) => code === "PLAN_CHANGED")) instanceof JobError);
}

function tableOf(answer: z.output<typeof tableAnswer>, catalog: Texts, doing: string): CatalogTable {
  const { "metadata-location": at, metadata, config: ofTable, "storage-credentials": vended } = answer;
  if (at === undefined || at === null) {
    throw new JobError("SPEC_INVALID", `${doing}: the catalog names no metadata file for it`, {
      hint: "only tables that were committed can be read",
    });
  }
  const { location } = metadata;
  // Of several, those count whose place is the nearest to the table's.
  const [nearest] = (vended ?? [])
    .filter(({ prefix }) => location.startsWith(prefix))
    .toSorted((left, right) => right.prefix.length - left.prefix.length);
  // Other stores are reached as without a catalog.
  const isInS3 = /^s3[an]?:/i.test(location);
  const config = isInS3 ? { ...catalog, ...ofTable, ...nearest?.config } : {};
  const { "s3.path-style-access": pathStyle } = config;
  return {
    uuid: metadata["table-uuid"],
    metadata: at,
    location,
    storage: {
      endpoint: config["s3.endpoint"],
      region: config["s3.region"] ?? config["client.region"],
      pathStyle: pathStyle === undefined ? undefined : pathStyle === "true",
    },
    credentials: isInS3 ? credentialsIn({ ...ofTable, ...nearest?.config }) : undefined,
  };
}

function credentialsIn(config: Texts): GivenCredentials | undefined {
  const { "s3.access-key-id": accessKeyId, "s3.secret-access-key": secretAccessKey } = config;
  if (accessKeyId === undefined || secretAccessKey === undefined) {
    return undefined;
  }
  const { "s3.session-token": sessionToken, "s3.session-token-expires-at-ms": expires = "" } = config;
  return {
    accessKeyId,
    secretAccessKey,
    ...(sessionToken === undefined ? {} : { sessionToken }),
    ...(/^\d{1,15}$/.test(expires) ? { expiration: new Date(Number(expires)) } : {}),
  };
}

/** With a body, it is a POST, which is sent once. @throws Unsettled then; JobError PLAN_CHANGED for a conflict */
type Ask = <T>(
  url: string,
  type: z.ZodType<T>,
  request?: { readonly extra?: Texts; readonly body?: string },
) => Promise<T>;

/** A request is sent once more with a new token where the last one is refused. */
function askerOf(options: CatalogOptions, base: string, doing: string): Ask {
  const { login, retry, signal, findProxy, url } = options;
  const tokens = login.kind === "oauth2" ? tokensOf(options, login, base, doing) : undefined;
  const authorize = async (asked: string, extra: Texts, body: string | undefined): Promise<Texts> => {
    switch (login.kind) {
      case "none":
        return extra;
      case "token":
        return { ...extra, authorization: `Bearer ${await login.token()}` };
      case "oauth2":
        return { ...extra, authorization: `Bearer ${(await tokens?.current()) ?? ""}` };
      case "signed":
        return await login.sign({
          method: body === undefined ? "GET" : "POST",
          url: new URL(asked),
          headers: extra,
          body: body === undefined ? [] : [Buffer.from(body)],
        });
      default:
        return assertNever(login);
    }
  };

  return async (asked, type, { extra = {}, body } = {}) => {
    let refusedStatus: number | undefined;
    const place: HttpEndpoint = {
      doing,
      retry,
      signal,
      findProxy,
      headers: () => authorize(asked, { accept: "application/json", ...extra }, body),
      hint: `run the same command again when the catalog ${url} answers; retry.max_seconds is how long a run waits for it`,
      refused(answer) {
        refusedStatus = answer.status;
        return refusalOf(answer, { doing, url, login });
      },
    };
    const send = (): Promise<unknown> =>
      body === undefined ? readOwnJson(asked, place) : postJson(asked, place, body);
    const answer = await send().catch(async (error: unknown) => {
      // 419: the token has expired.
      if (tokens?.isUsed() !== true || ![401, 419].includes(refusedStatus ?? 0)) {
        throw error;
      }
      tokens.forget();
      return await send();
    });
    const parsed = type.safeParse(answer);
    if (!parsed.success) {
      const [issue] = parsed.error.issues;
      throw new JobError(
        "SPEC_INVALID",
        `${doing}: ${url} does not answer like an Iceberg REST catalog: ${issue?.path.join(".")}: ${issue?.message}`,
        { hint: urlHint },
      );
    }
    return parsed.data;
  };
}

const urlHint =
  "input.catalog.url is the URL that other clients have for the catalog, before /v1, such as https://host/api/catalog; many catalogs need input.catalog.warehouse";

/** A token is fetched anew so long before it expires. */
const renewBeforeMs = 60_000;

interface Tokens {
  current(): Promise<string>;
  /** Whether a token was fetched for an earlier request. */
  isUsed(): boolean;
  forget(): void;
}

function tokensOf(
  { retry, signal, findProxy, url }: CatalogOptions,
  { clientId, clientSecret, scope, tokenUrl }: Extract<CatalogLogin, { kind: "oauth2" }>,
  base: string,
  doing: string,
): Tokens {
  const at = tokenUrl ?? `${base}/v1/oauth/tokens`;
  let known: { readonly token: string; readonly untilMs: number } | undefined;
  const fetchToken = async (): Promise<string> => {
    const secret = await clientSecret();
    const refused = ({ status, said, headers }: HttpAnswer): JobError =>
      new JobError(
        "PERMISSION",
        `${doing}: ${at} gives out no token: ${answerText(status, headers, saidIn(said, { secret }))}`,
        {
          hint: "check client_id, client_secret, scope and token_url of input.catalog.oauth2",
        },
      );
    const hint = `run the same command again when ${at} answers`;
    const form = new URLSearchParams({
      grant_type: "client_credentials",
      client_id: clientId,
      client_secret: secret,
      scope,
    });
    const parsed = tokenAnswer.safeParse(await postForm(at, { doing, retry, signal, findProxy, refused, hint }, form));
    if (!parsed.success) {
      throw new JobError("SPEC_INVALID", `${doing}: ${at} does not answer like a server of OAuth 2`, {
        hint: `set input.catalog.oauth2.token_url, unless ${url} gives out tokens itself`,
      });
    }
    const { access_token: token, expires_in: seconds = Number.POSITIVE_INFINITY } = parsed.data;
    // Of a short life, half is used.
    known = { token, untilMs: retry.nowMs() + Math.max(seconds * 1000 - renewBeforeMs, seconds * 500) };
    return token;
  };
  return {
    current: async () => (known !== undefined && retry.nowMs() < known.untilMs ? known.token : await fetchToken()),
    isUsed: () => known !== undefined,
    forget() {
      known = undefined;
    },
  };
}

const loginHints: Readonly<Record<CatalogLogin["kind"], string>> = {
  none: "set input.catalog.token, oauth2 or auth",
  token: "input.catalog.token is wrong or has expired: get a new one, or use oauth2, which fetches tokens",
  oauth2: "check input.catalog.oauth2: its client, its scope, and whether the catalog takes tokens of its token_url",
  signed:
    "check the credentials of the environment (AWS_ACCESS_KEY_ID, AWS_PROFILE or the role), and the region of input.catalog.url",
};

function refusalOf(
  { status, said, headers, place }: HttpAnswer,
  { doing, url, login }: { readonly doing: string; readonly url: string; readonly login: CatalogLogin },
): JobError {
  const found = answerText(status, headers, saidIn(said, {}));
  const isTable = status === 404 && !place.endsWith("/v1/config");
  const error = (
    code: "PERMISSION" | "FILE_MISSING" | "SPEC_INVALID" | "PLAN_CHANGED",
    message: string,
    hint: string,
  ): JobError => new JobError(code, `${doing}: ${message}`, { hint });
  if (status === 409 || status === 412) {
    return error("PLAN_CHANGED", `it was changed meanwhile: ${found}`, "run the same command again");
  }
  if (status === 401 || status === 419) {
    const what = login.kind === "none" ? "asks for a login" : "refuses the login";
    return error("PERMISSION", `the catalog ${url} ${what}: ${found}`, loginHints[login.kind]);
  }
  if (status === 403) {
    const hint = `grant this user the rights to the table, its data and properties; or set input.catalog.credentials to own, if it may not have credentials of the store. If the login is wrong: ${loginHints[login.kind]}`;
    return error("PERMISSION", `the catalog ${url} denies it: ${found}`, hint);
  }
  if (status >= 300 && status < 400) {
    return error(
      "SPEC_INVALID",
      `the catalog ${url} sends this client elsewhere: ${found}`,
      "if that is right, write that URL as input.catalog.url: what is given for one host is not sent to another",
    );
  }
  return error(isTable ? "FILE_MISSING" : "SPEC_INVALID", `the catalog ${url} answers ${found}`, urlHint);
}

/** "HTTP 403: NotAuthorized: …", "HTTP 302: https://other". */
function answerText(status: number, headers: HttpAnswer["headers"], said: string): string {
  const to = status < 400 ? (headers.get("location") ?? "").replace(/[?#].*$/s, "") : said;
  return `HTTP ${status}${to === "" ? "" : `: ${printable(to)}`}`;
}

/** Without secrets. A refusal of Iceberg has type and message, one of OAuth 2 a description. */
function saidIn(text: string, secrets: Readonly<Record<string, string>>): string {
  let said = text;
  try {
    const answer: unknown = JSON.parse(text);
    const error = isRecord(answer) ? (answer["error"] ?? answer["message"]) : undefined;
    const parts = isRecord(error)
      ? [error["type"], error["message"]]
      : [error, isRecord(answer) ? answer["error_description"] : undefined];
    said = parts.filter((part) => typeof part === "string" && part !== "").join(": ");
  } catch {
    // It is no JSON, but a page of a proxy.
  }
  return withoutValues(said, secrets).replaceAll(/\s+/g, " ").trim().slice(0, 300);
}
