import type { ProcessLimits, StdioTarget } from '../../../config/values/upstream-config.ts';
import type { Launch } from './printed-launch.ts';
import { programFile } from './program-file.ts';
import { inSandbox, noSandbox, type OwnFiles } from './sandbox.ts';

/**
 * Returns the launch that sets the limits of a target and enters its sandbox before it runs the program. Returns the same launch if the
 * target has neither.
 *
 * @param ownFiles files of the gateway that no sandbox shows.
 * @throws {GatewayError} `upstream-unavailable` (executed `no`) if there is no sandbox on this machine, or it would show the config file: the
 *   program is not started.
 */
export async function confine(
  upstream: string,
  launch: Launch,
  { processLimits, sandbox, cwd }: StdioTarget,
  ownFiles: OwnFiles | undefined,
): Promise<Launch> {
  const path = launch.env['PATH'] ?? '';
  const isConfined = sandbox !== undefined || hasSystemLimits(processLimits);
  // Without its program the launch fails, and should fail with the words for a missing program.
  if (!isConfined || (await programFile(launch.command, launch.cwd, path)) === undefined) return launch;
  if (sandbox === undefined) return withLimits(launch, processLimits);
  if (process.platform !== 'linux') throw noSandbox(upstream, 'a sandbox needs Linux; remove "sandbox"');
  const bwrap = await programFile('bwrap', undefined, process.env['PATH'] ?? '');
  if (bwrap === undefined) {
    const advice = 'install it (Debian and Ubuntu: apt-get install bubblewrap), or remove "sandbox"';
    throw noSandbox(upstream, `its sandbox needs the program "bwrap" of bubblewrap, which was not found; ${advice}`);
  }
  return withLimits(await inSandbox(launch, sandbox, { upstream, bwrap, cwd, ownFiles }), processLimits);
}

function hasSystemLimits(limits: ProcessLimits | undefined): limits is ProcessLimits {
  return limits?.openFiles !== undefined || limits?.cpuMs !== undefined;
}

/** Returns the launch by a shell that sets limits of the system (`setrlimit`), which children inherit, and is replaced by the program. */
function withLimits(launch: Launch, limits: ProcessLimits | undefined): Launch {
  if (!hasSystemLimits(limits)) return launch;
  const { openFiles, cpuMs } = limits;
  const settings = [
    ...(openFiles === undefined ? [] : [`ulimit -n ${openFiles}`]),
    ...(cpuMs === undefined ? [] : [`ulimit -t ${Math.ceil(cpuMs / 1_000)}`]),
  ];
  const script = `${settings.join(' && ')} && exec "$@"`;
  return { ...launch, command: '/bin/sh', args: ['-c', script, 'linkspan-limits', launch.command, ...launch.args] };
}
