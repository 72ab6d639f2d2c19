import { basename } from 'node:path';

import { addressText } from '../config/address.ts';
import type { Config, ProfileConfig, UpstreamConfig } from '../config/config.ts';
import { loadConfig } from '../config/load.ts';
import { ConfigError } from '../config/problem.ts';

export interface ValidateOptions {
  readonly config: string;
  readonly listen?: string | undefined;
  readonly json: boolean;
}

/** Prints what would be served, without starting anything. Returns the exit code: 1 when the file cannot be used. */
export function validate({ config: file, listen, json }: ValidateOptions): number {
  try {
    const { config, warnings } = loadConfig(file, { env: process.env, listen });
    if (json) process.stdout.write(`${JSON.stringify({ valid: true, ...summary(config), warnings }, null, 2)}\n`);
    else {
      for (const warning of warnings) process.stderr.write(`warning: ${warning}\n`);
      for (const { id, problem } of config.upstreams) {
        if (problem !== undefined) process.stderr.write(`warning: upstream ${id} cannot be started: ${problem}\n`);
      }
      process.stdout.write(overview(file, config));
    }
    return 0;
  } catch (thrown) {
    if (!json || !(thrown instanceof ConfigError)) throw thrown;
    process.stdout.write(`${JSON.stringify({ valid: false, problems: thrown.problems }, null, 2)}\n`);
    return 1;
  }
}

/** What may be shown of a config: no arguments, environment, headers or paths of URLs, which hold secrets. */
function summary({ file, listen, operator, stateDir, upstreams, profiles }: Config): object {
  return {
    file,
    listen: addressText(listen),
    operator: operator === undefined ? null : addressText(operator),
    stateDir,
    upstreams: upstreams.map(({ id, title, target, prefix, isolation, start, required, problem }) => ({
      id,
      title,
      endpoint: `/mcp/${id}`,
      transport: target.kind,
      prefix,
      isolation,
      start,
      required,
      problem: problem ?? null,
    })),
    profiles: profiles.map(({ id, upstreams }) => ({ id, endpoint: `/mcp/${id}`, upstreams })),
  };
}

function overview(file: string, config: Config): string {
  const { listen, operator, publicUrl, stateDir, upstreams, profiles } = config;
  const rows: [string, string][] = [
    ['/mcp', upstreams.length === 1 ? 'the one upstream' : `all ${upstreams.length} upstreams`],
    ...upstreams.map((upstream): [string, string] => [`/mcp/${upstream.id}`, upstreamText(upstream)]),
    ...profiles.map((profile): [string, string] => [`/mcp/${profile.id}`, profileText(profile)]),
  ];
  const width = Math.max(...rows.map(([endpoint]) => endpoint.length));
  return [
    `${file} is valid.`,
    '',
    `clients    ${publicUrl ?? `http://${addressText(listen)}`}`,
    ...rows.map(([endpoint, text]) => `  ${endpoint.padEnd(width)}  ${text}`),
    `operators  ${operator === undefined ? 'none' : `http://${addressText(operator)}`}`,
    `state      ${stateDir}`,
    '',
  ].join('\n');
}

function upstreamText({ target, isolation, start, required, problem }: UpstreamConfig): string {
  if (problem !== undefined) return `FAILED ${problem}`;
  const program = target.kind === 'stdio' ? ` ${basename(target.command)}` : '';
  const each = isolation === 'shared' ? 'shared by all' : `one per ${isolation}`;
  return `${target.kind}${program}, ${each}, ${start}${required ? ', required' : ''}`;
}

function profileText({ upstreams }: ProfileConfig): string {
  return `profile of ${upstreams.join(', ')}`;
}
