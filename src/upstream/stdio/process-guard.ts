import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { Socket } from 'node:net';
import type { Logger } from 'pino';
import { TAG_NAME, TaggedProcesses } from './tagged-processes.ts';

/**
 * The script of the guard. Reads `+<group>` and `-<group>` lines. At the end of its input, ends the remaining groups, and every
 * other process whose environment has the variable `$1` (see {@link TaggedProcesses}). Plain POSIX shell. It ignores the signals that
 * stop a whole service, because it has to outlive the gateway, whose stop may take a minute.
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
is_in_groups() {
  read -r stat < "/proc/$1/stat"
  set -- \${stat##*) }
  case $groups in *" $3 "*) return 0 ;; esac
  return 1
}
end_all() {
  for group in $groups; do kill "-$1" "-$group" 2>/dev/null; done
  for file in $(grep -lsaF "$2" /proc/[0-9]*/environ 2>/dev/null); do
    pid=\${file#/proc/}
    pid=\${pid%/environ}
    is_in_groups "$pid" || kill "-$1" "$pid" 2>/dev/null
  done
}
end_all TERM "$1"
[ "$groups" = ' ' ] || sleep 1
end_all KILL "$1"
`;

/** After this number of exits, the shell is not started again. */
const MAX_DEATHS = 5;

/**
 * Ends our process groups if the gateway cannot, for example after SIGKILL. A shell in a session of its own detects the end of
 * the gateway by the end of the pipe between them. It is started with the first group. The gateway works without it too.
 */
export class ProcessGuard implements AsyncDisposable {
  /** The processes that our children have started, in any group or session. */
  readonly tagged = new TaggedProcesses();
  readonly #log: Logger;
  readonly #groups = new Set<number>();
  #shell: ChildProcess | undefined;
  #deaths = 0;
  #isDisabled = false;

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Registers a process group. @param group id of a group whose processes must not outlive the gateway. */
  add(group: number): void {
    this.#groups.add(group);
    if (this.#shell === undefined) this.#start();
    else this.#write(`+${group}\n`);
  }

  /** Removes a process group. Must be called as soon as the group is empty, because the system may then reuse its id. */
  remove(group: number): void {
    if (this.#groups.delete(group)) this.#write(`-${group}\n`);
  }

  /** Ends the shell, which ends the groups that are still registered. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isDisabled = true;
    const shell = this.#shell;
    if (shell === undefined) return;
    const exited = once(shell, 'exit');
    shell.ref();
    shell.stdin?.end();
    await exited;
  }

  #start(): void {
    if (this.#isDisabled) return;
    try {
      const shell = spawn('/bin/sh', ['-c', SCRIPT, 'linkspan-guard', `${TAG_NAME}=${this.tagged.prefix}`], {
        cwd: '/',
        env: { PATH: '/usr/bin:/bin' },
        stdio: ['pipe', 'ignore', 'ignore'],
        detached: true,
      });
      shell.on('error', (error) => this.#disable(error));
      if (shell.pid === undefined) return;
      this.#shell = shell;
      // The shell must not keep the gateway running.
      shell.unref();
      if (shell.stdin instanceof Socket) shell.stdin.unref();
      // The exit event follows a broken pipe.
      shell.stdin.on('error', (error) => this.#log.debug({ err: error }, 'cannot write to the process guard'));
      shell.once('exit', () => this.#onShellExit());
    } catch (thrown) {
      this.#disable(thrown);
      return;
    }
    for (const group of this.#groups) this.#write(`+${group}\n`);
  }

  #onShellExit(): void {
    this.#shell = undefined;
    if (this.#isDisabled) return;
    this.#deaths++;
    if (this.#deaths === MAX_DEATHS) {
      this.#disable(new Error(`the guard ended ${MAX_DEATHS} times`));
      return;
    }
    this.#log.warn('process guard ended, and is replaced');
    if (this.#groups.size > 0) this.#start();
  }

  #disable(thrown: unknown): void {
    this.#shell = undefined;
    if (this.#isDisabled) return;
    this.#isDisabled = true;
    this.#log.warn({ err: thrown }, 'no process guard: if the gateway is killed, processes of upstreams may remain');
  }

  #write(text: string): void {
    this.#shell?.stdin?.write(text);
  }
}
