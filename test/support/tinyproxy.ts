import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Child } from './child.ts';
import { freePort } from './free-port.ts';
import { debianProgram, type FoundProgram } from './programs.ts';
import { waitUntil } from './wait-until.ts';

/** The proxy `tinyproxy` of the machine or of Debian, or the reason why it is missing. */
export const TINYPROXY: FoundProgram = await debianProgram('tinyproxy', 'tinyproxy-bin', 'usr/bin/tinyproxy');

/** On Linux, a connection to this address goes to 127.0.0.1. */
export const ANY_ADDRESS = '0.0.0.0';

/** A running `tinyproxy`, which asks for a user name and password. */
export interface Tinyproxy extends AsyncDisposable {
  /** Its URL with user name and password. */
  readonly url: string;
  /** Its URL with a wrong password. */
  readonly wrongUrl: string;
}

/** Starts `tinyproxy` on 127.0.0.1. It reaches servers on 127.0.0.1 as {@link ANY_ADDRESS}, which does not count as this machine. */
export async function startTinyproxy(): Promise<Tinyproxy> {
  if (!('path' in TINYPROXY)) throw new Error(TINYPROXY.missing);
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-tinyproxy-'));
  const file = join(dir, 'tinyproxy.conf');
  const port = await freePort();
  const lines = [
    `Port ${port}`,
    'Listen 127.0.0.1',
    'Timeout 60',
    'Allow 127.0.0.1',
    'BasicAuth linkspan tunnel-password',
  ];
  await writeFile(file, `${lines.join('\n')}\n`);
  const child = await Child.start(TINYPROXY.path, ['-d', '-c', file]);
  await waitUntil(() => isOpen(port));
  return {
    url: `http://linkspan:tunnel-password@127.0.0.1:${port}`,
    wrongUrl: `http://linkspan:wrong-password@127.0.0.1:${port}`,
    [Symbol.asyncDispose]: async () => {
      await child[Symbol.asyncDispose]();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

async function isOpen(port: number): Promise<boolean> {
  return await new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => (socket.destroy(), resolve(true)));
    socket.once('error', () => resolve(false));
  });
}
