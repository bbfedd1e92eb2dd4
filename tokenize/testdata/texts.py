"""Texts that tell tokenizers apart."""
import random
import sys
import unicodedata

SCRIPTS = {
    "english": "The quick brown fox doesn't jump over 1,234 lazy dogs; it's \"fine\" (really).",
    "french": "L'été dernier, où étiez-vous ? À Noël, çà et là… «Déjà vu», dit-il.",
    "german": "Straßenbahnführer größer als Übergänge? Ja – natürlich!",
    "polish": "Zażółć gęślą jaźń. Pchnąć w tę łódź jeża.",
    "turkish": "Iğdır'da İstanbul'dan gelen çığlık şüphesiz büyük.",
    "vietnamese": "Tiếng Việt có nhiều dấu: ắ ằ ẳ ẵ ặ, ưỡng, nghiêng.",
    "russian": "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "greek": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία· ΑΣ, ας.",
    "armenian": "Բոլոր մարդիկ ծնվում են ազատ ու հավասար։",
    "georgian": "ყველა ადამიანი იბადება თავისუფალი. ᲧᲕᲔᲚᲐ",
    "hebrew": "שָׁלוֹם עולם, כל בני האדם נולדו בני חורין.",
    "arabic": "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق ١٢٣٤.",
    "persian": "می‌خواهم نیم‌فاصله را ببینم؛ ۱۲۳۴۵.",
    "hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता १२३.",
    "bengali": "সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে।",
    "tamil": "மனிதப் பிறிவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.",
    "thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน ๑๒๓",
    "lao": "ມະນຸດທຸກຄົນເກີດມາມີກຽດສັກສີ",
    "khmer": "មនុស្សទាំងអស់ កើតមកមានសេរីភាព",
    "burmese": "လူတိုင်းသည် တူညီ လွတ်လပ်သော",
    "amharic": "የሰው ልጅ ሁሉ ሲወለድ ነጻና",
    "chinese": "人人生而自由，在尊严和权利上一律平等。２０２４年，「测试」。",
    "japanese": "すべての人間は、生まれながらにして自由であり、ｶﾀｶﾅとカタカナ。",
    "korean": "모든 인간은 태어날 때부터 자유로우며 ㄱㄴㄷ 가각.",
    "tibetan": "འགྲོ་བ་མིའི་རིགས་རྒྱུད་ཡོངས་ལ་",
    "cherokee": "ᏂᎦᏓ ᎠᏂᏴᏫ ꭰꮒᏼꮻ",
    "math": "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β → γ, ½ ² Ⅻ 𝔄𝕓𝒸 x₁₀",
    "emoji": "👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇫🇷🇩🇪 ❤️ 🫠 🪿 🫨 #️⃣ ☎︎",
    "new scripts": "\U00010940\U00010941 \U00016ea0\U00016ebb \U0001e6c0 \u088f\u0c5c\u0cdc\ua7d2 \U00011db0 \U000323b0",
}

CODE = {
    "python": "def f(x: int) -> str:\n\treturn f\"{x!r:>10}\" if x else ''  # café\n\n\nclass A(B):\n    pass\n",
    "go": "func (r *R) Get(ctx context.Context) (int, error) {\n\tif err := ctx.Err(); err != nil {\n\t\treturn 0, fmt.Errorf(\"get: %w\", err)\n\t}\n\treturn 0x1F_FF, nil\n}\n",
    "c": "#include <stdio.h>\r\nint main(void){\r\n  printf(\"%d\\n\", 1<<30);\r\n  return 0;\r\n}\r\n",
    "json": '{"a": [1, 2.50e-3, null, true], "b": {"c": "\\u00e9\\n"}, "d": ""}',
    "html": "<!DOCTYPE html><p class='x'>&amp; &lt;b&gt;</p><!-- x --><br/>",
    "sql": "SELECT COUNT(*)\nFROM t WHERE a='it''s' AND b<>10000000;",
    "log": "2025-07-01T08:05:09.123Z ERROR [pid=4242] 10.0.0.1:8080 failed: 0xdeadbeef (x10000)\n" * 3,
}

SPACES = ["", " ", "  ", "   a", "a   ", "\n", "\n\n\n", " \n", "\n ", "\t\t x", "a\r\nb\r\r\nc", "\u00a0x\u3000y\u2003z", "a\u2028b\u2029c\u0085d", "\x0b\x0c\x1c", "\u200bx\u200c\u200d\ufeff", " \u0301a", "x \n \n y"]

NUMBERS = ["0", "12", "123", "1234", "12345678901234567890", "3.14159e-10", "1,000,000", "½²³", "١٢٣٤", "１２３", "ⅫⅣ", "a1b22c333d4444", "-5 +7 ×8"]

CONTRACTIONS = ["I'm you're he'll we've they'd it's don't", "I'M YOU'RE HE'LL WE'VE THEY'D IT'S DON'T", "'s 't 're", "x'ſ y'K", "’s ’t", "''s", "'sx 'tx 'll1"]

CONTROL = ["\0", "a\0b", "\0\0\0", " \0 ", "text\0", "\x01\x02\x7f", "a\x1bb[0m", "\x80\x9f\xad", "\ufffd\ufffe\uffff", "\ue000\U000f0000\U0010fffd", "end\0\n\0"]


def random_texts(count, seed, special):
    """Mixes of words, marks, spaces, special tokens and code points from everywhere."""
    rng = random.Random(seed)
    words = " ".join(list(SCRIPTS.values()) + list(CODE.values())).split(" ")
    for _ in range(count):
        out = []
        for _ in range(rng.randint(1, 60)):
            kind = rng.random()
            if kind < 0.5:
                out.append(rng.choice(words))
            elif kind < 0.65:
                out.append(rng.choice(SPACES))
            elif kind < 0.75:
                out.append(rng.choice(NUMBERS + CONTRACTIONS + CONTROL))
            elif kind < 0.8 and special:
                out.append(rng.choice(special))
            elif kind < 0.9:
                out.append("".join(chr(rng.randint(0x20, 0x2FFF)) for _ in range(rng.randint(1, 5))))
            else:
                out.append("".join(random_char(rng) for _ in range(rng.randint(1, 5))))
            if rng.random() < 0.6:
                out.append(" ")
        yield "".join(out)


def random_char(rng):
    while True:
        c = rng.randint(0, 0x10FFFF)
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def every_code_point():
    """Every assigned code point once, and those next to them, in texts of 96, with something around each."""
    chunk = []
    for c in range(0x20, 0x40000):
        if 0xD800 <= c < 0xE000 or unicodedata.category(chr(c)) == "Co":
            continue
        if unicodedata.category(chr(c)) == "Cn" and c % 16 and not 0x88F <= c <= 0x1ADD:
            continue
        chunk.append(chr(c))
        if len(chunk) == 96:
            yield "".join(chunk)
            yield " a".join(chunk[::3])
            chunk = []
    yield "".join(chunk)


def special_texts(special):
    for token in special:
        yield token
        yield f"a{token}b"
        yield f" {token} {token}\n{token}{token}"
        yield f"<|{token}|> {token[:-1]} {token[1:]}"


def texts(special, large):
    """All texts; large adds the thousands that only a comparison of whole vocabularies needs."""
    out = list(SCRIPTS.values()) + list(CODE.values()) + SPACES + NUMBERS + CONTRACTIONS + CONTROL
    out += list(special_texts(special[:8]))
    normal = list(SCRIPTS.values()) if large else [SCRIPTS[k] for k in ("vietnamese", "hindi", "korean", "math")]
    out += [unicodedata.normalize(form, text) for text in normal for form in ("NFC", "NFD", "NFKC")]
    out += list(random_texts(400 if large else 6, 7, special))
    if large:
        out += list(every_code_point())
        out.append(("".join(SCRIPTS.values()) + "\n" + "".join(CODE.values())) * 400)
        out.append("a" * 100_000)
        out.append(" " * 100_000)
        out.append("\U0001f600" * 20_000)
        out[-4] = out[-4][:900_000]
    return list(dict.fromkeys(out))


if __name__ == "__main__":
    print(len(texts(["<s>"], True)), file=sys.stderr)
