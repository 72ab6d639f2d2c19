import { withoutLongRuns } from '../mark-runs.ts';
import { withoutHidden } from './hidden-characters.ts';

/** A kind of instruction to a model that has no place in a definition. */
interface Rule {
  /** Completes "the text …". */
  readonly what: string;
  readonly pattern: RegExp;
}

/** Files and values that a tool has no reason to name as the aim of a reading. */
const PRIVATE_THINGS =
  String.raw`(?:~\/|\/etc\/|\/home\/|\.ssh\b|id_rsa|\.env\b|\.aws\b|\.cursor\b|mcp\.json|private key|` +
  String.raw`credentials?\b|passwords?\b|secrets?\b|api[ _-]?keys?\b|access tokens?\b|environment variables?\b|` +
  String.raw`config(?:uration)? files?\b|conversation|chat history)`;

/** Not one of the names that documentation uses for examples, which reach nobody (RFC 2606). */
const NO_EXAMPLE = String.raw`(?!example\.(?:com|org|net)\b)`;

/** The rules. Gaps are bounded, so that each search takes a time that is linear in the text. */
const RULES: readonly Rule[] = [
  {
    what: 'tells the model to ignore instructions',
    pattern:
      /\b(?:ignore|disregard|forget|override|bypass|skip)\b.{0,40}\b(?:previous|prior|above|earlier|preceding|other|all|any|your|system|safety)\b.{0,40}\b(?:instructions?|prompts?|rules?|messages?|directions?|guidelines?|polic(?:y|ies)|tools?|context|checks?)\b/,
  },
  {
    what: 'tells the model to keep something from the user',
    pattern:
      /\b(?:do not|don['’]?t|never|must not|should not|without|avoid)\b.{0,30}\b(?:tell(?:ing)?|inform(?:ing)?|mention(?:ing)?|notify(?:ing)?|reveal(?:ing)?|show(?:ing)?|disclos(?:e|ing)|alert(?:ing)?|ask(?:ing)?|warn(?:ing)?|let(?:ting)?|report(?:ing)?)\b.{0,50}\b(?:user|users|human|person|operator|anyone|anybody|them)\b/,
  },
  {
    what: 'tells the model to keep something from the user',
    pattern:
      /\b(?:hide|conceal|keep|withhold)\b.{0,40}\b(?:from the (?:user|human|operator)|secret|hidden|confidential)\b|\b(?:user|human)s? (?:must|should|need) not (?:know|see|notice)\b|\b(?:secretly|covertly)\b|(?<!\b(?:succeeds?|fails?|ignore[ds]?|skip(?:s|ped)?) )\bsilently\b(?! (?:ignored|skipped|dropped|truncated)\b)/,
  },
  {
    what: 'tells the model to call other tools',
    pattern:
      /\b(?:call|invoke|use|run|execute|trigger)\s{1,3}(?:the |a |an |our |your )?(?!this\b)["'`“]?[\w.:/-]{1,80}["'`”]?\s{1,3}(?:tool|function|command)\b/,
  },
  {
    what: 'tells the model to call other tools',
    pattern:
      /\b(?:must|always|first|should|need to|have to|then|also|immediately|make sure to|remember to)\s{1,3}(?:also |first |always |then )?(?:call|invoke|execute|run)\b/,
  },
  {
    what: 'gives orders for the time before or after other calls',
    pattern:
      /\b(?:before|after|when(?:ever)?|prior to)\s{1,3}(?:you )?(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|runn?(?:ing)?|execut(?:e|ing))\s{1,3}(?:this|any|other|another|the|all|every)\b.{0,40}\b(?:tool|function|command)s?\b/,
  },
  {
    what: 'tells the model to read files or secrets',
    pattern: new RegExp(
      String.raw`\b(?:read|open|cat|load|access|fetch|get|find|collect|include|send|upload|attach|pass|provide|copy)\b.{0,80}${PRIVATE_THINGS}`,
    ),
  },
  {
    what: 'tells the model to send data to an address',
    pattern: new RegExp(
      String.raw`\b(?:send|forward|post|bcc|cc|e-?mail|upload|transmit|exfiltrate|submit|report)\b` +
        String.raw`(?:.{0,80}https?:\/\/${NO_EXAMPLE}|.{0,140}[\w.+-]@${NO_EXAMPLE}[\w-]{1,64}\.)`,
    ),
  },
  {
    what: 'looks like a message of the system',
    pattern:
      /<\/?(?:system|important|instructions?|assistant|secret|admin|critical|sys)\b[^>]{0,200}>|\[\/?(?:system|inst|important)\]|<\|[a-z_]{1,40}\|>|\bsystem prompt\b/,
  },
  {
    what: 'gives the model a role or an order',
    pattern: /\b(?:you must|you are now|you will now|from now on|act as|pretend to|your new (?:task|role|goal))\b/,
  },
];

/**
 * Returns the kinds of instructions to a model in a text, in words. They are signs for a reviewer and no proof: English only, and a
 * determined author avoids them.
 */
export function imperatives(text: string): readonly string[] {
  const plain = withoutLongRuns(withoutHidden(text)).normalize('NFKC').replaceAll(/\s+/g, ' ').toLowerCase();
  return [...new Set(RULES.filter(({ pattern }) => pattern.test(plain)).map(({ what }) => what))];
}
