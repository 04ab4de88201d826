import { proxiesOf } from "../base/http/proxies.js";
import { catalogTable, type CatalogLogin, type CatalogOptions, type NamedTable } from "../sources/lake/rest-catalog.js";
import { type CatalogSpec, tableName } from "./jobfile/catalog-spec.js";
import type { Tools } from "./attempt.js";
import { readHeaderValue, readSecret } from "./reading.js";

interface CatalogTools extends Tools {
  readonly where: (path: readonly string[]) => string;
}

/**
 * Nothing is asked, and no secret read, before it is used. @param of the part of the spec that names table and catalog
 */
export function openCatalogTable(
  of: CatalogOptions["of"],
  { catalog, table }: { readonly catalog: CatalogSpec; readonly table: string },
  tools: CatalogTools,
): NamedTable {
  const { retry, signal } = tools;
  const name = tableName(table);
  if (name === undefined) {
    throw new Error("a spec whose table has no name in its catalog has passed its check");
  }
  const { url, warehouse, credentials } = catalog;
  let opened: NamedTable | undefined;
  const open = async (): Promise<NamedTable> =>
    (opened ??= catalogTable(
      {
        url,
        warehouse,
        login: await loginOf(catalog, [...of.split("."), "catalog"], tools),
        isVending: credentials === "vended",
        retry,
        signal,
        findProxy: proxiesOf(process.env),
        of,
      },
      name,
      of === "input" ? `reading table ${table}` : `writing to ${table}`,
    ));
  return {
    load: async () => await (await open()).load(),
    commit: async (change) => await (await open()).commit(change),
    create: async (made) => {
      await (await open()).create(made);
    },
  };
}

async function loginOf(
  { url, token, oauth2, auth }: CatalogSpec,
  key: readonly string[],
  tools: CatalogTools,
): Promise<CatalogLogin> {
  const { folder, where } = tools;
  const at = (...path: readonly string[]) => ({ folder, key: where([...key, ...path]) });
  if (auth === "sigv4") {
    const { signAws } = await import("./served-models.js");
    return { kind: "signed", sign: await signAws([url], [...key, "auth"], "execute-api", tools) };
  }
  if (oauth2 !== undefined) {
    const { client_id: clientId, client_secret: secret, scope, token_url: tokenUrl } = oauth2;
    const clientSecret = (): Promise<string> => readSecret(secret, at("oauth2", "client_secret"));
    return { kind: "oauth2", clientId, clientSecret, scope, tokenUrl };
  }
  return token === undefined ? { kind: "none" } : { kind: "token", token: () => readHeaderValue(token, at("token")) };
}
