import { type Comparison, comparisonsOf, ITEM_KINDS, mayHold, type Relation } from '../../policy/comparisons.ts';
import type { Document } from '../document/document.ts';
import { type Path, type Problem, problemLine } from '../document/problem.ts';
import { didYouMean, suggest } from '../document/suggest.ts';
import type { Faults, SelectorJudge } from './selector-faults.ts';

/** All values that a variable of conditions can have. */
interface ClosedVariable {
  readonly what: string;
  readonly values: readonly string[];
  /** Returns the value that is meant by another text; undefined if it means none. */
  readonly meant?: (text: string) => string | undefined;
}

/** The names in a config that conditions may compare variables with. */
export interface ConditionNames {
  /** The key of every upstream in the file by its id, disabled ones included. */
  readonly upstreams: ReadonlyMap<string, string>;
  readonly profiles: readonly string[];
  readonly selectors: SelectorJudge;
}

const RELATIONS: Readonly<Record<Exclude<Relation, 'equals' | 'includes'>, string>> = {
  startsWith: 'begins with',
  endsWith: 'ends with',
  contains: 'contains',
};

/** Finds texts in conditions that a variable can never have, so that their comparison never matches. */
export class ConditionJudge {
  readonly #document: Document;
  readonly #selectors: SelectorJudge;
  readonly #variables: ReadonlyMap<string, ClosedVariable>;

  constructor(document: Document, { upstreams, profiles, selectors }: ConditionNames) {
    this.#document = document;
    this.#selectors = selectors;
    const { issuers, keyNames } = selectors;
    const ids = [...upstreams.keys()];
    const views = ['', ...ids, ...profiles];
    const byKey = new Map([...upstreams].map(([id, key]) => [key, id]));
    const viewOf = (path: string) => views.find((view) => path === (view === '' ? '/mcp' : `/mcp/${view}`));
    this.#variables = new Map<string, ClosedVariable>([
      ['upstream', { what: 'upstream', values: ids, meant: (text) => byKey.get(text) }],
      ['endpoint', { what: 'endpoint', values: views, meant: viewOf }],
      ['tool.kind', { what: 'kind of item', values: ITEM_KINDS }],
      ['principal.issuer', { what: 'issuer in auth', values: issuers }],
      ...(keyNames === undefined ? [] : [['principal.keyName', { what: 'API key', values: keyNames }] as const]),
    ]);
  }

  /** Returns the faults of a condition that compiles. @param path of the condition. */
  judge(path: Path, when: string): Faults {
    const [problems, warnings]: [Problem[], string[]] = [[], []];
    for (const comparison of comparisonsOf(when)) {
      const { variable, relation, text, character } = comparison;
      const problem = (message: string) => this.#document.problem(path, `${message} (at character ${character})`);
      const closed = this.#variables.get(variable);
      if (closed !== undefined && !mayHold(comparison, closed.values))
        problems.push(problem(faultOf(comparison, closed)));
      const why =
        variable === 'principal.groups' && relation === 'includes' ? this.#selectors.whyEmpty(text) : undefined;
      if (why !== undefined) warnings.push(problemLine(problem(why)));
    }
    return { problems, warnings };
  }
}

/** Returns a fault without the text, which may be the value of a variable of the environment. */
function faultOf({ relation, text }: Comparison, { what, values, meant }: ClosedVariable): string {
  if (relation !== 'equals' && relation !== 'includes') return `no ${what} ${RELATIONS[relation]} this text`;
  const id = meant?.(text);
  if (id !== undefined) return `conditions name an ${what} by its id; write ${JSON.stringify(id)}`;
  return `no such ${what}${didYouMean(suggest(text, values))}`;
}
