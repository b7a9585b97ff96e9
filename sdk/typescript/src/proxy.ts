/** HTTP proxies, as HTTP_PROXY, HTTPS_PROXY and NO_PROXY name them. Node itself does not read these by default. */
import * as http from "node:http";
import * as https from "node:https";
import type { Duplex } from "node:stream";
import { connect as connectTls } from "node:tls";

import { misuse } from "./errors.js";
import { shown } from "./json.js";

const connectTimeout = 10_000;

export interface Proxy {
  readonly hostname: string;
  readonly port: string;
  /** What authorizes requests to it. */
  readonly headers: Record<string, string>;
}

/** Returns the proxy for a server, or undefined. Throws UsageError if its address cannot be used. */
export function proxyFor(url: URL, environment: NodeJS.ProcessEnv = process.env): Proxy | undefined {
  const read = (name: string) => environment[name.toLowerCase()] ?? environment[name];
  const variable = url.protocol === "https:" ? "HTTPS_PROXY" : "HTTP_PROXY";
  const named = read(variable) ?? "";
  if (named === "" || bypasses(url, read("NO_PROXY") ?? "")) {
    return undefined;
  }
  const address = named.includes("://") ? named : `http://${named}`;
  if (!URL.canParse(address) || !address.toLowerCase().startsWith("http://")) {
    const hidden = named.replace(/^(.*:\/\/)?.*@/, "$1…@"); // a login, which would be in logs
    throw misuse(`${variable} must be an address such as http://proxy:8080, not ${shown(hidden)}`);
  }
  const proxy = new URL(address);
  const [, port = "8080"] = /^[^/]*\/\/[^/?#]*:(\d+)(?:[/?#]|$)/.exec(address) ?? []; // a URL leaves out port 80
  const login = [proxy.username, proxy.password].map(decoded).join(":");
  const basic = `Basic ${Buffer.from(login).toString("base64")}`;
  return {
    hostname: proxy.hostname.replace(/^\[|\]$/g, ""),
    port,
    headers: login === ":" ? {} : { "Proxy-Authorization": basic },
  };
}

/** Decodes a part of a URL. One that is not encoded remains as it is. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Returns whether NO_PROXY has the host of a server, or a domain of it. */
function bypasses(url: URL, without: string): boolean {
  return without.split(",").some((entry) => {
    const name = entry
      .trim()
      .replace(/^\*?\./, "")
      .toLowerCase();
    return name === "*" || (name !== "" && (url.host === name || `.${url.hostname}`.endsWith(`.${name}`)));
  });
}

/** Returns an agent whose connections to a server with TLS go through a proxy. */
export function throughProxy(proxy: Proxy, options: https.AgentOptions): https.Agent {
  return new ProxyAgent(proxy, options);
}

type Connected = (err: Error | null, socket: Duplex) => void;

class ProxyAgent extends https.Agent {
  /** Connections to the proxy, and requests for one. Before its handshake, the agent does not know a connection. */
  readonly #all = new Set<http.ClientRequest | Duplex>();

  constructor(
    private readonly proxy: Proxy,
    options: https.AgentOptions,
  ) {
    super(options);
  }

  override destroy(): void {
    super.destroy();
    this.#all.forEach((one) => one.destroy());
  }

  #add(one: http.ClientRequest | Duplex): void {
    this.#all.add(one);
    one.once("close", () => this.#all.delete(one));
  }

  /** Lets the proxy connect to the server, and starts TLS with the server. */
  override createConnection(options: http.RequestOptions, connected?: Connected): undefined {
    const { hostname, port, headers } = this.proxy;
    const failed = connected as ((err: Error) => void) | undefined;
    const server = options.hostname ?? options.host ?? "";
    const target = `${server}:${options.port ?? 443}`;
    const how = { hostname, port, method: "CONNECT", path: target, headers: { Host: target, ...headers } };
    const asked = http.request({ ...how, agent: false, timeout: connectTimeout });
    this.#add(asked);
    asked.on("timeout", () => asked.destroy(new Error(`the proxy ${hostname} does not answer`)));
    asked.on("error", (err) => failed?.(err));
    asked.on("response", ({ statusCode }) => {
      asked.destroy(new Error(`the proxy ${hostname} answered ${statusCode ?? 0}`));
    });
    asked.on("connect", ({ statusCode }, socket: Duplex) => {
      if (statusCode !== 200) {
        socket.destroy();
        failed?.(new Error(`the proxy ${hostname} answered ${statusCode ?? 0}`));
        return;
      }
      const secure = connectTls({ socket, servername: server });
      this.#add(secure);
      const late = () => secure.destroy(new Error(`no TLS through the proxy ${hostname}: timeout`));
      secure.setTimeout(connectTimeout, late);
      secure.once("error", (err: Error) => failed?.(err));
      secure.once("secureConnect", () => {
        secure.setTimeout(0, late);
        connected?.(null, secure);
      });
    });
    asked.end();
    return undefined;
  }
}
