import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { listenOnLoopback } from './loopback.ts';
import { childrenOf } from './process-cost.ts';
import { pinned, Program } from './program.ts';
import type { Place, Running } from './subjects.ts';

const INSTALL_MS = 180_000;
const START_MS = 5_000;

function exists(command: string, flag: string): boolean {
  return spawnSync(command, [flag], { stdio: 'ignore' }).status === 0;
}

/** @throws {Error} that names the missing part. */
function ensureInstalled(): void {
  if (exists('nginx', '-v')) return;
  const isRoot = process.getuid?.() === 0;
  if (!isRoot || !exists('apt-get', '--version')) {
    throw new Error('nginx is not installed, and only root on Debian can install it here: install nginx-light');
  }
  console.log('installing nginx-light');
  // RUNLEVEL=1 keeps the package from starting a server on port 80.
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' };
  const script = 'apt-get update -qq && apt-get install -qq -y --no-install-recommends nginx-light';
  const install = spawnSync('sh', ['-c', script], { env, timeout: INSTALL_MS, encoding: 'utf8' });
  if (install.status !== 0) throw new Error(`nginx-light could not be installed: ${install.stderr.slice(-500)}`);
  if (!exists('nginx', '-v')) throw new Error('nginx-light is installed, but nginx is not on the PATH (/usr/sbin?)');
}

async function freePort(): Promise<number> {
  const server = createServer();
  const port = await listenOnLoopback(server);
  server.close();
  await once(server, 'close');
  return port;
}

/** Resolves with true if something accepts connections there, else with undefined. */
async function accepts(port: number): Promise<true | undefined> {
  const socket = connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return undefined;
  } finally {
    socket.destroy();
  }
}

/**
 * Returns the configuration of a plain reverse proxy. Its limits on reused connections are raised, so that it does
 * not reconnect.
 */
function configuration(dir: string, port: number, upstream: URL): string {
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  return `
daemon off;
worker_processes 1;
${process.getuid?.() === 0 ? 'user root;' : ''}
pid ${dir}/nginx.pid;
error_log stderr warn;
events { worker_connections 4096; }
http {
  access_log off;
  ${temporary.map((kind) => `${kind}_temp_path ${dir}/${kind};`).join('\n  ')}
  client_max_body_size 16m;
  keepalive_requests 100000000;
  upstream mcp {
    server ${upstream.host};
    keepalive 256;
    keepalive_requests 100000000;
  }
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://mcp;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
    }
  }
}
`;
}

/** @throws {Error} if nginx is missing or does not start. */
export async function startNginx(place: Place): Promise<Running> {
  ensureInstalled();
  if (place.upstream.kind !== 'http') throw new Error('nginx cannot speak to a stdio upstream');
  const upstream = new URL(place.upstream.url);
  const dir = join(place.dir, 'nginx');
  await mkdir(dir);
  const port = await freePort();
  const file = join(dir, 'nginx.conf');
  await writeFile(file, configuration(dir, port, upstream));
  const command = ['nginx', '-p', dir, '-e', 'stderr', '-c', file];
  const program = await Program.start('nginx', pinned(place.core, command), place.dir);
  try {
    await program.until(() => accepts(port), START_MS);
  } catch (thrown) {
    await program[Symbol.asyncDispose]();
    throw thrown;
  }
  return {
    url: `http://127.0.0.1:${port}${upstream.pathname}`,
    pids: [program.pid, ...childrenOf(program.pid)],
    program,
  };
}
