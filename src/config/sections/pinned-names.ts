import type { OnChange } from '../../lock/pins.ts';
import type { AccessConfig } from '../../policy/access-config.ts';
import type { LockConfig } from '../config.ts';
import type { UpstreamConfig } from '../upstream-config.ts';
import type { Document } from '../document/document.ts';
import { type Problem, problemLine } from '../document/problem.ts';
import { didYouMean, suggest } from '../document/suggest.ts';
import { rulesOf } from './rules.ts';

const KINDS = [
  { kind: 'tool', setting: 'tools' },
  { kind: 'prompt', setting: 'prompts' },
] as const;

/** Returns the reaction to a definition of an upstream that differs from the lock; undefined if nothing of it is pinned. */
type OnChangeOf = (upstream: UpstreamConfig) => OnChange | undefined;

/** The judgement of the names in access rules. */
interface PinnedNames {
  readonly problems: readonly Problem[];
  readonly warnings: readonly string[];
}

/** An upstream whose definitions are pinned. */
interface Pinned {
  /** The keys of its definitions, by kind. */
  readonly names: Readonly<Record<'tool' | 'prompt', readonly string[]>>;
  /** True if nothing is served that is not in the lock. */
  readonly isComplete: boolean;
}

/**
 * Judges the names of tools and prompts in access rules by the lock file. A name that no upstream of its rule has there can never match where all of them serve
 * only what is pinned: a problem. Where one of them serves more, it is a warning. Globs, and upstreams that are not in the lock, are not judged.
 */
export function judgePinnedNames(
  document: Document,
  access: AccessConfig,
  lock: LockConfig,
  upstreams: readonly UpstreamConfig[],
  onChangeOf: OnChangeOf,
): PinnedNames {
  const pinned = new Map(upstreams.map((upstream) => [upstream.id, pinnedOf(lock, upstream.id, onChangeOf(upstream))]));
  const [problems, warnings]: [Problem[], string[]] = [[], []];
  for (const { rule, path } of access.roles.flatMap(rulesOf)) {
    const judges = (rule.upstreams ?? [...pinned.keys()]).map((id) => pinned.get(id));
    if (!judges.every((judge) => judge !== undefined)) continue;
    for (const { kind, setting } of KINDS) {
      const known = judges.flatMap(({ names }) => names[kind]);
      for (const [index, name] of (rule[setting] ?? []).entries()) {
        if (/[*?]/.test(name) || known.includes(name)) continue;
        const message = `no such ${kind} in ${lock.file}${didYouMean(suggest(name, known))}; this rule never matches it`;
        const problem = document.problem([...path, setting, index], message);
        if (judges.every(({ isComplete }) => isComplete)) problems.push(problem);
        else warnings.push(problemLine(problem));
      }
    }
  }
  return { problems, warnings };
}

function pinnedOf({ pins }: LockConfig, upstream: string, reaction: OnChange | undefined): Pinned | undefined {
  const lists = pins.listsOf(upstream);
  if (reaction === undefined || lists.length === 0) return undefined;
  const definitions = lists.flatMap((one) => [...one.definitions.values()]);
  const names = (kind: 'tool' | 'prompt') => definitions.filter((one) => one.kind === kind).map(({ key }) => key);
  return { names: { tool: names('tool'), prompt: names('prompt') }, isComplete: reaction !== 'warn' };
}
