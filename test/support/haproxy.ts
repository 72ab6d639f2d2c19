import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Child } from './child.ts';
import { debianPackages, type FoundProgram, installedProgram, libraryEnvironment } from './programs.ts';
import { waitUntil } from './wait-until.ts';

/** The program with the libraries that a slim Debian lacks. */
const PACKAGES = ['haproxy', 'liblua5.3-0', 'libopentracing-c-wrapper0', 'libopentracing1', 'libpcre2-8-0'];
const CONFIG = new URL('../../deploy/haproxy/balancer.cfg', import.meta.url);

/** HAProxy with the environment that it needs, or the reason why it is missing. */
export type FoundHaproxy = FoundProgram & { readonly env?: Readonly<Record<string, string>> };

/** Returns the HAProxy of the machine, or else that of Debian's package. */
export async function findHaproxy(): Promise<FoundHaproxy> {
  const installed = installedProgram('haproxy');
  if ('path' in installed) return installed;
  const unpacked = await debianPackages(PACKAGES);
  if ('missing' in unpacked) return { missing: `haproxy is not installed, and ${unpacked.missing}` };
  return { path: join(unpacked.path, 'usr/sbin/haproxy'), env: libraryEnvironment(unpacked.path) };
}

/** A replica and its operator's port. */
export interface BalancedReplica {
  readonly url: string;
  readonly operatorUrl: string;
}

/** Starts the balancer of the compose file on this port, for these replicas. @param dir a folder for its config. */
export async function startHaproxy(
  haproxy: FoundHaproxy,
  dir: string,
  port: number,
  replicas: readonly BalancedReplica[],
): Promise<Child> {
  if ('missing' in haproxy) throw new Error(haproxy.missing);
  const servers = replicas.map(
    ({ url, operatorUrl }, n) => `  server replica${n} ${new URL(url).host} port ${new URL(operatorUrl).port}`,
  );
  const ofCompose: ReadonlyMap<string, string> = new Map([
    ['bind :3010', `bind 127.0.0.1:${port}`],
    [' port 3001', ''],
    ['  server-template replica 10 replica:3000 resolvers docker init-addr none', servers.join('\n')],
  ]);
  let text = await readFile(CONFIG, 'utf8');
  for (const [here, there] of ofCompose) {
    if (!text.includes(here)) throw new Error(`deploy/haproxy/balancer.cfg has no "${here}"`);
    text = text.replace(here, there);
  }
  const file = join(dir, 'haproxy.cfg');
  await writeFile(file, text);
  const child = await Child.start(haproxy.path, ['-db', '-f', file], { env: haproxy.env ?? {} });
  await waitUntil(async () => {
    if (!child.running) throw new Error(child.logs());
    const status = await fetch(`http://127.0.0.1:${port}/`).then(
      (response) => response.status,
      () => undefined,
    );
    return status !== undefined && status !== 503;
  });
  return child;
}
