import { withoutLongRuns } from '../mark-runs.ts';
import { withoutHidden } from './hidden-characters.ts';

/** A kind of instruction to a model that has no place in a definition. */
interface Rule {
  /** Completes "the text …". */
  readonly what: string;
  readonly pattern: RegExp;
  /** Patterns that follow, each within this number of characters after the end of the one before. */
  readonly next?: readonly { readonly within: number; readonly pattern: RegExp }[];
}

/** Files and values that a tool has no reason to name as the aim of a reading. */
const PRIVATE_THINGS =
  /~\/|\/etc\/|\/home\/|\.ssh\b|id_rsa|\.env\b|\.aws\b|\.cursor\b|mcp\.json|private key|credentials?\b|passwords?\b|secrets?\b|api[ _-]?keys?\b|access tokens?\b|environment variables?\b|config(?:uration)? files?\b|conversation|chat history/g;

/** Matches the end of a host name: a path, port, space, bracket or quotation mark, or punctuation at the end of a word. */
const HOST_END = String.raw`(?=(?::\d+)?(?:[/?#\s"'\x60<>()[\]{}|*,]|[.,;:!?…’”»—]+(?:[\s"'\x60)\]]|$)|$))`;

/** Not one of the names that documentation uses for examples, which reach nobody (RFC 2606). */
const NO_EXAMPLE = String.raw`(?!example\.(?:com|org|net)${HOST_END})`;

const SENDING = /\b(?:send|forward|post|bcc|cc|e-?mail|upload|transmit|exfiltrate|submit|report)\b/g;

/**
 * The rules. Parts that other text may separate are patterns of their own. One pattern for all of them would read the text between them
 * again from each beginning.
 */
const RULES: readonly Rule[] = [
  {
    what: 'tells the model to ignore instructions',
    pattern: /\b(?:ignore|disregard|forget|override|bypass|skip)\b/g,
    next: [
      {
        within: 40,
        pattern: /\b(?:previous|prior|above|earlier|preceding|other|all|any|your|system|safety)\b/g,
      },
      {
        within: 40,
        pattern:
          /\b(?:instructions?|prompts?|rules?|messages?|directions?|guidelines?|polic(?:y|ies)|tools?|context|checks?)\b/g,
      },
    ],
  },
  {
    what: 'tells the model to keep something from the user',
    pattern: /\b(?:do not|don['’]?t|never|must not|should not|without|avoid)\b/g,
    next: [
      {
        within: 30,
        pattern:
          /\b(?:tell(?:ing)?|inform(?:ing)?|mention(?:ing)?|notify(?:ing)?|reveal(?:ing)?|show(?:ing)?|disclos(?:e|ing)|alert(?:ing)?|ask(?:ing)?|warn(?:ing)?|let(?:ting)?|report(?:ing)?)\b/g,
      },
      { within: 50, pattern: /\b(?:user|users|human|person|operator|anyone|anybody|them)\b/g },
    ],
  },
  {
    what: 'tells the model to keep something from the user',
    pattern: /\b(?:hide|conceal|keep|withhold)\b/g,
    next: [{ within: 40, pattern: /\b(?:from the (?:user|human|operator)|secret|hidden|confidential)\b/g }],
  },
  {
    what: 'tells the model to keep something from the user',
    pattern:
      /\b(?:user|human)s? (?:must|should|need) not (?:know|see|notice)\b|\b(?:secretly|covertly)\b|(?<!\b(?:succeeds?|fails?|ignore[ds]?|skip(?:s|ped)?) )\bsilently\b(?! (?:ignored|skipped|dropped|truncated)\b)/g,
  },
  {
    what: 'tells the model to call other tools',
    pattern:
      /\b(?:call|invoke|use|run|execute|trigger)\s{1,3}(?:the |a |an |our |your )?(?!this\b)["'`“]?[\w.:/-]{1,80}["'`”]?\s{1,3}(?:tool|function|command)\b/g,
  },
  {
    what: 'tells the model to call other tools',
    pattern:
      /\b(?:must|always|first|should|need to|have to|then|also|immediately|make sure to|remember to)\s{1,3}(?:also |first |always |then )?(?:call|invoke|execute|run)\b/g,
  },
  {
    what: 'gives orders for the time before or after other calls',
    pattern:
      /\b(?:before|after|when(?:ever)?|prior to)\s{1,3}(?:you )?(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|runn?(?:ing)?|execut(?:e|ing))\s{1,3}(?:this|any|other|another|the|all|every)\b/g,
    next: [{ within: 40, pattern: /\b(?:tool|function|command)s?\b/g }],
  },
  {
    what: 'tells the model to read files or secrets',
    pattern: /\b(?:read|open|cat|load|access|fetch|get|find|collect|include|send|upload|attach|pass|provide|copy)\b/g,
    next: [{ within: 80, pattern: PRIVATE_THINGS }],
  },
  {
    what: 'tells the model to send data to an address',
    pattern: SENDING,
    next: [{ within: 80, pattern: new RegExp(String.raw`https?:\/\/${NO_EXAMPLE}`, 'g') }],
  },
  {
    what: 'tells the model to send data to an address',
    pattern: SENDING,
    next: [{ within: 140, pattern: new RegExp(String.raw`[\w.+-](?=@${NO_EXAMPLE}[\w-]{1,64}\.)`, 'g') }],
  },
  {
    what: 'looks like a message of the system',
    pattern: /<\/?(?:system|important|instructions?|assistant|secret|admin|critical|sys)\b/g,
    next: [{ within: 200, pattern: />/g }],
  },
  {
    what: 'looks like a message of the system',
    pattern: /\[\/?(?:system|inst|important)\]|<\|[a-z_]{1,40}\|>|\bsystem prompt\b/g,
  },
  {
    what: 'gives the model a role or an order',
    pattern: /\b(?:you must|you are now|you will now|from now on|act as|pretend to|your new (?:task|role|goal))\b/g,
  },
];

/**
 * Returns the kinds of instructions to a model in a text, in words. They are signs for a reviewer and no proof: English only, and a
 * determined author avoids them.
 */
export function imperatives(text: string): readonly string[] {
  const plain = withoutLongRuns(withoutHidden(text)).normalize('NFKC').replaceAll(/\s+/g, ' ').toLowerCase();
  return [...new Set(RULES.filter((rule) => isIn(plain, rule)).map(({ what }) => what))];
}

/** Takes a time that is linear in the text. */
function isIn(text: string, { pattern, next = [] }: Rule): boolean {
  // Most texts have no beginning. `matchAll` compiles the pattern each time.
  if (text.search(pattern) < 0) return false;
  let ends = [...text.matchAll(pattern)].map(endOf);
  for (const { within, pattern: following } of next) {
    let passed = 0;
    ends = [...text.matchAll(following)]
      .filter(({ index }) => {
        while ((ends[passed] ?? Infinity) <= index) passed++;
        return index - (ends[passed - 1] ?? -Infinity) <= within;
      })
      .map(endOf);
  }
  return ends.length > 0;
}

function endOf({ 0: { length }, index }: RegExpExecArray): number {
  return index + length;
}
