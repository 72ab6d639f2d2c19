import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { Socket } from 'node:net';
import type { Logger } from 'pino';
import { TAG_NAME, TaggedProcesses } from './tagged-processes.ts';

/**
 * Reads `+<group>` and `-<group>` lines; when they end, ends every group that is left, and every process whose environment
 * has the variable `$1` (see {@link TaggedProcesses}). Plain POSIX shell. It ignores the signals that ask a whole service to
 * end, for it has to outlast the gateway, which may take a minute over that.
 */
const SCRIPT = `
trap '' HUP INT TERM
groups=' '
while read -r line; do
  group=\${line#?}
  case $line in
    +*) groups="$groups$group " ;;
    -*) case $groups in *" $group "*) groups="\${groups%% $group *} \${groups#* $group }" ;; esac ;;
  esac
done
end_all() {
  for group in $groups; do kill "-$1" "-$group" 2>/dev/null; done
  for file in $(grep -lsaF "$2" /proc/[0-9]*/environ 2>/dev/null); do
    pid=\${file#/proc/}
    kill "-$1" "\${pid%/environ}" 2>/dev/null
  done
}
end_all TERM "$1"
[ "$groups" = ' ' ] || sleep 1
end_all KILL "$1"
`;

/** A shell that ends so often will not live. */
const MAX_DEATHS = 5;

/**
 * Ends our process groups when we cannot do so ourselves, as after SIGKILL: a shell in a session of its own that notices our
 * death by the end of the pipe between us. Started with the first group; without a shell we go on without it.
 */
export class ProcessGuard implements AsyncDisposable {
  /** The processes that our children started, wherever they went. */
  readonly tagged = new TaggedProcesses();
  readonly #log: Logger;
  readonly #groups = new Set<number>();
  #shell: ChildProcess | undefined;
  #deaths = 0;
  #isUnavailable = false;

  constructor(log: Logger) {
    this.#log = log;
  }

  /** @param group id of a process group whose processes must not outlive us */
  add(group: number): void {
    this.#groups.add(group);
    if (this.#shell === undefined) this.#start();
    else this.#write(`+${group}\n`);
  }

  /** Must be called as soon as the group is empty: its id may then come to mean another's processes. */
  remove(group: number): void {
    if (this.#groups.delete(group)) this.#write(`-${group}\n`);
  }

  /** Ends the shell, and with it what is still registered. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isUnavailable = true;
    const shell = this.#shell;
    if (shell === undefined) return;
    const exited = once(shell, 'exit');
    shell.ref();
    shell.stdin?.end();
    await exited;
  }

  #start(): void {
    if (this.#isUnavailable) return;
    try {
      const shell = spawn('/bin/sh', ['-c', SCRIPT, 'linkspan-guard', `${TAG_NAME}=${this.tagged.prefix}`], {
        cwd: '/',
        env: { PATH: '/usr/bin:/bin' },
        stdio: ['pipe', 'ignore', 'ignore'],
        detached: true,
      });
      shell.on('error', (error) => this.#unavailable(error));
      if (shell.pid === undefined) return;
      this.#shell = shell;
      // It must not keep us alive.
      shell.unref();
      if (shell.stdin instanceof Socket) shell.stdin.unref();
      // A broken pipe is followed by the exit.
      shell.stdin.on('error', (error) => this.#log.debug({ err: error }, 'process guard does not listen'));
      shell.once('exit', () => this.#ended());
    } catch (thrown) {
      this.#unavailable(thrown);
      return;
    }
    for (const group of this.#groups) this.#write(`+${group}\n`);
  }

  #ended(): void {
    this.#shell = undefined;
    if (this.#isUnavailable) return;
    this.#deaths++;
    if (this.#deaths === MAX_DEATHS) {
      this.#unavailable(new Error(`the guard ended ${MAX_DEATHS} times`));
      return;
    }
    this.#log.warn('process guard ended, and is replaced');
    if (this.#groups.size > 0) this.#start();
  }

  #unavailable(thrown: unknown): void {
    this.#shell = undefined;
    if (this.#isUnavailable) return;
    this.#isUnavailable = true;
    this.#log.warn(
      { err: thrown },
      'no process guard: if the gateway is killed, processes of upstreams may stay behind',
    );
  }

  #write(text: string): void {
    this.#shell?.stdin?.write(text);
  }
}
