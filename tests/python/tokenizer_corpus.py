"""A corpus for comparing tokenizers: thousands of lines in many languages, scripts and kinds of
mess, the same on every run and every machine.

Characters are sampled among those of Unicode 3.2 (and a few later blocks named here), whose
properties no longer change: implementations built on different Unicode versions agree on them.
"""

import random
import unicodedata

SENTENCES = [
    # English
    "The quick brown fox jumps over the lazy dog, and nobody in the village seems to mind.",
    "She said: \"I'm sure they'll come; we've waited since 7 o'clock, haven't we?\"",
    "It's 2024, and the company's revenue grew by 13.7% to $4,512,998.03 (up from $3.97M).",
    "A reader who doesn't like footnotes* can skip them -- most people do, don't they?",
    # Western and Northern Europe
    "Où est la bibliothèque ? L'été dernier, j'y ai lu « Le Petit Prince » d'un trait.",
    "Der Straßenbahnfahrer grüßte die Fußgänger, als wäre er längst über alle Berge.",
    "¿Dónde está el niño? ¡Mañana será otro día, señor Muñoz!",
    "O coração não tem razão: amanhã vão à praça às três da manhã.",
    "Perché la città è così bella? Però c'è già troppa gente, più dell'anno scorso.",
    "Het is gezellig in 's-Hertogenbosch; z'n broer komt uit België met de fiets.",
    "Blåbærsyltetøy på brød smaker godt; æøå er ikke så vanskelig.",
    "Räksmörgås är gott på sommaren, sa flickan från Göteborg åt sin mormor.",
    "Yö oli pitkä, ja jäätelö sulai pöydälle ennen kuin ehdin syödä sitä.",
    "Þórður sagði að það væri ágætt veður á Ísafirði í gær.",
    "Tá an aimsir go hálainn inniu, agus beidh an fharraige ciúin amárach.",
    # Central and Eastern Europe
    "Zażółć gęślą jaźń, powiedział Łukasz i poszedł źle oświetloną ścieżką.",
    "Příliš žluťoučký kůň úpěl ďábelské ódy nad řekou Vltavou.",
    "Árvíztűrő tükörfúrógép: így próbáljuk ki az összes magyar ékezetet.",
    "Și-a adus aminte că ţara noastră are munți înalți și văi adânci.",
    "Đurđica je pošla u šumu brati žute gljive, čak i ćaskati s prijateljima.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Їжак з'їв жука, а ґава сиділа на паркані й мовчала.",
    "Щастието е като пеперуда: кацва само на този, който не я гони.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία, είπε ο σοφός ΟΔΥΣΣΕΥΣ.",
    "Վաղ առավոտյան գյուղում լսվում էր միայն աքաղաղի կանչը։",
    "ვეფხის ტყაოსანი შოთა რუსთაველმა დაწერა მეთორმეტე საუკუნეში.",
    "Iğdır'ın ılık güneşinde İstanbul'dan gelen çocuklar şarkı söyledi.",
    # Middle East and Africa
    "اللغة العربية جميلةٌ، وفيها كلماتٌ كثيرةٌ مثل: «سلام» و«كتاب» (١٢٣٤).",
    "در باغِ ما درختان بلندی هستند که می‌گویند صد سال دارند؛ آیا باور می‌کنید؟",
    "یہ کتاب بہت اچھی ہے، آپ اسے ضرور پڑھیں۔",
    "בְּרֵאשִׁית בָּרָא אֱלֹהִים אֵת הַשָּׁמַיִם וְאֵת הָאָרֶץ׃ שלום עולם!",
    "ሰላም ለሁሉም ይሁን፤ ዛሬ አየሩ ጥሩ ነው።",
    "Mtoto mdogo anapenda kusoma vitabu vya hadithi kila siku jioni.",
    "Ọjọ́ dára lónìí, ẹ jẹ́ kí a lọ sí ọjà láti ra iṣu àti ẹ̀fọ́.",
    # South and Southeast Asia
    "नमस्ते दुनिया! क्या आप १२३ किताबें पढ़ चुके हैं? ज़रूर, क्यों नहीं।",
    "আমি বাংলায় গান গাই, আমি বাংলার গান গাই।",
    "ਸਤਿ ਸ੍ਰੀ ਅਕਾਲ, ਤੁਸੀਂ ਕਿਵੇਂ ਹੋ?",
    "કેમ છો? આજે બજારમાં ખૂબ ભીડ હતી.",
    "வணக்கம்! தமிழ் மொழி மிகவும் பழமையானது, இனிமையானது.",
    "తెలుగు భాష చాలా అందమైనది, వినడానికి తీయగా ఉంటుంది.",
    "ಕನ್ನಡ ನಾಡು ನಮ್ಮ ಹೆಮ್ಮೆ, ಇಲ್ಲಿ ಮಳೆ ಚೆನ್ನಾಗಿ ಬರುತ್ತದೆ.",
    "മലയാളം ഒരു ദ്രാവിഡ ഭാഷയാണ്, കേരളത്തിൽ സംസാരിക്കുന്നു.",
    "සිංහල අකුරු රවුම් හැඩයෙන් යුක්තයි, ලියන්න ලේසියි.",
    "สวัสดีครับ วันนี้อากาศดีมาก เราไปเที่ยวทะเลกันเถอะ ราคา ๑๒๐ บาท",
    "ສະບາຍດີ ມື້ນີ້ເຈົ້າກິນເຂົ້າແລ້ວບໍ?",
    "မင်္ဂလာပါ၊ ဒီနေ့ ရာသီဥတု ကောင်းတယ်။",
    "ភាសាខ្មែរមានអក្សរច្រើន ហើយស្រស់ស្អាតណាស់។",
    "བོད་ཡིག་ནི་ཡི་གེ་རྙིང་པ་ཞིག་ཡིན།",
    "Trời hôm nay đẹp quá, chúng ta cùng nhau đi dạo quanh Hồ Hoàn Kiếm nhé!",
    "Anak-anak itu bermain layang-layang di lapangan sampai matahari terbenam.",
    # East Asia
    "我能吞下玻璃而不伤身体。今天是2024年5月17日，星期五！",
    "臺灣的夜市有很多好吃的東西，例如「蚵仔煎」、臭豆腐和珍珠奶茶。",
    "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
    "コンピューターのｶﾀｶﾅと漢字、ひらがなを混ぜて、１２３円です〜。",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.",
    "Монгол хэлээр бичсэн өгүүлбэр: өнөөдөр цас орж байна.",
    "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ ᠤᠨ ᠰᠤᠷᠭᠠᠯᠲᠠ",
    # Mathematics and signs
    "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β = ¬(¬α ∨ β), ℕ ⊆ ℤ ⊂ ℚ; 𝒜𝓑𝔠 𝟘𝟙𝟚 x² + y³ ≤ ½ ± ⅓",
    "→ ⇒ ↔ ★ ☆ ♠ ♥ ① ② ⑳ Ⅳ ⅷ № ℃ ™ © ® § ¶ † ‡ • … ‰ € £ ¥ ₿",
]

CODE = [
    "def fib(n: int) -> int:\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n",
    "for (int i = 0; i < n; ++i) {\n\t\tsum += a[i]*b[i];\t// dot product\n}\r\n",
    "const f = async (x) => { await g(`${x}!`); return x?.y ?? null; };",
    "SELECT name, COUNT(*) AS n FROM users WHERE id IN (1,2,3) GROUP BY name HAVING n>=10;",
    "#include <vector>\ntemplate<typename T> auto operator<=>(const T&, const T&) = default;",
    "if [[ -z \"$HOME\" ]]; then echo 'none' >&2; exit 1; fi",
    '{"key": [1, 2.5e-10, true, null], "path": "C:\\\\Users\\\\me\\\\file.txt"}',
    "<div class=\"a b\" id='x'><p>Hello&nbsp;&amp; bye</p></div><!-- end -->",
    "https://example.com/a/b?q=1&r=%20x#frag  user.name+tag@mail.example.co.uk",
    "let v: Vec<Option<&'static str>> = vec![None; 16]; // 'a lifetime",
    "x = 0xDEADBEEF + 0b1010 + 1_000_000 + 3.14159265358979e+00",
    "| a | b |\n|---|:-:|\n| 1 | 2 |\n\n```py\nprint('x')\n```\n",
    "\\begin{equation} \\frac{\\partial u}{\\partial t} = \\nabla^2 u \\end{equation}",
    "2024-05-17T23:59:59.999Z [ERROR] (thread-12) Failed: code=-1, retry in 30s...",
]

EMOJI = (
    "😀 😂 🙏🏽 👍🏿 👩‍👩‍👧‍👦 👨🏻‍💻 🏳️‍🌈 🏴‍☠️ 🇫🇷 🇯🇵 🇧🇷🇩🇪 ❤️ ☺︎ 1️⃣ #️⃣ 🧑🏾‍🤝‍🧑🏼 🏴󠁧󠁢󠁳󠁣󠁴󠁿 🤷‍♀️ 🫠 ⌚ ♟️ 👁️‍🗨️"
).split(" ")

SPACES = [
    *" \t\n\r\v\f\x1c\x1f\u00a0\u0085\u1680\u180e\u2003\u2009\u200a\u200b\u200c\u200d\u2028\u2029",
    *"\u202f\u205f\u2060\u3000\ufeff",
    *["  ", "   ", "\r\n", "\n\n", " \n", " \u00a0 "],
]

CONTROLS = [
    *map(chr, range(32)),
    *map(chr, range(0x7F, 0xA0)),
    *"\u00ad\u200e\u200f\u202a\u202e\u2066\u2069\ufff9\ufffd\U000e0001",
    *"\ue000\uf8ff\U000f0000\U0010fffd\ufdd0\uffff",  # private use, and no characters at all
]

CONTRACTIONS = (
    "'s 'S 't 'T 're 'RE 'Re 've 'm 'M 'll 'LL 'd 'D ’s 'ſ '\u212a 'x ''s ' 'st s't".split(" ")
)

# Scripts that came after Unicode 3.2, and are stable since.
LATER_BLOCKS = [
    (0x07CA, 0x07EB),
    (0x1B05, 0x1B34),
    (0xA840, 0xA874),
    (0xA984, 0xA9B3),
    (0x10A00, 0x10A01),
    (0x13000, 0x1342F),
    (0x1E900, 0x1E944),
    (0x2C80, 0x2CE5),
    (0x20000, 0x20100),
    (0x1F300, 0x1F321),
    (0x1F600, 0x1F645),
    (0x16A0, 0x16EB),
    (0x12000, 0x1236F),
]


def assigned_characters():
    """Lists of characters, one a block of 256 code points, so that rare scripts get their share."""
    blocks = {}
    stable = unicodedata.ucd_3_2_0
    for code in range(0x30000):
        if stable.category(chr(code)) not in ("Cn", "Cs", "Co"):
            blocks.setdefault(code >> 8, []).append(chr(code))
    for begin, end in LATER_BLOCKS:
        blocks.setdefault(begin >> 8, []).extend(chr(code) for code in range(begin, end))
    return list(blocks.values())


class Generator:
    def __init__(self, seed, added_tokens):
        self.random = random.Random(seed)
        self.added_tokens = added_tokens
        self.blocks = assigned_characters()

    def some(self, items, low, high):
        return [self.random.choice(items) for _ in range(self.random.randint(low, high))]

    def word(self):
        sentence = self.random.choice(SENTENCES)
        return self.random.choice(sentence.split())

    def number(self):
        digits = self.random.choice(
            ["0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "０１２３４５６７８９"]
        )
        text = "".join(self.some(digits, 1, 12))
        form = self.random.choice(
            ["{}", "{}.{}", "-{}", "{},{}", "{}%", "{}e-{}", "x{}y", "{}²", "½{}"]
        )
        return form.format(text, "".join(self.some(digits, 1, 3)))

    def mixed_words(self):
        return "".join(
            self.word() + self.random.choice(SPACES) for _ in range(self.random.randint(1, 12))
        )

    def numbers(self):
        return self.random.choice([" ", "", ", ", "\n"]).join(
            self.number() for _ in range(self.random.randint(1, 6))
        )

    def code(self):
        lines = self.random.choice(CODE).split("\n")
        indent = self.random.choice(["", "  ", "    ", "\t", " \t "])
        return self.random.choice(["\n", "\r\n", "\n\n"]).join(indent + line for line in lines)

    def emoji(self):
        return self.random.choice(["", " "]).join(self.some(EMOJI + [self.word(), "!"], 1, 8))

    def spaces(self):
        return "".join(self.some(SPACES + ["a", "B", "7", "."], 1, 14))

    def controls(self):
        return "".join(self.some(CONTROLS + [" ", "a", "é", "漢"], 1, 12))

    def contractions(self):
        return "".join(
            self.word() + contraction + self.random.choice([" ", "", "s", "\n"])
            for contraction in self.some(CONTRACTIONS, 1, 6)
        )

    def one_script(self):
        block = self.random.choice(self.blocks)
        words = ["".join(self.some(block, 1, 9)) for _ in range(self.random.randint(1, 5))]
        return self.random.choice([" ", " ", "", ", "]).join(words)

    def many_scripts(self):
        return "".join(
            self.random.choice(self.random.choice(self.blocks))
            for _ in range(self.random.randint(1, 24))
        )

    def combining(self):
        marks = [*map(chr, range(0x300, 0x34F)), *"\u0651\u064e\u093c\u3099\u20e3"]
        letters = list("aeiounscAEIOUกकか가ㅎ") + ["\u1100", "\u1161", "\u11a8", "ﬁ", "ſ", "Å", "Ω"]
        return "".join(
            letter + "".join(self.some(marks, 0, 4)) for letter in self.some(letters, 1, 10)
        )

    def long_word(self):
        unit = self.random.choice(
            ["a", "ab", "=", "-", "0", "ha", "é", "漢", "_", " ", "\n", "A1", "🙂", "'s"]
        )
        return self.random.choice(["", " ", "x"]) + unit * self.random.randint(20, 400)

    def added(self):
        return "".join(
            self.some(
                self.added_tokens + [" ", "  ", "\n", self.word(), "x", "é", "<", "|>", "<|"], 1, 8
            )
        )

    def cut_sentence(self):
        sentence = self.random.choice(SENTENCES)
        begin = self.random.randint(0, len(sentence) - 1)
        cut = sentence[begin : begin + self.random.randint(1, 60)]
        return self.random.choice([cut, cut.upper(), cut.lower(), " " + cut, cut + " "])

    def shuffled(self):
        characters = list(self.random.choice(SENTENCES) + self.random.choice(CODE))
        self.random.shuffle(characters)
        return "".join(characters[:60])

    def lines(self, count):
        kinds = [
            self.mixed_words,
            self.numbers,
            self.code,
            self.emoji,
            self.spaces,
            self.controls,
            self.contractions,
            self.one_script,
            self.many_scripts,
            self.combining,
            self.long_word,
            self.added,
            self.cut_sentence,
            self.shuffled,
        ]
        return [kinds[i % len(kinds)]() for i in range(count)]


def training_lines():
    """What the families' vocabularies are trained on: plain enough that merges are plenty."""
    generator = Generator(seed=1, added_tokens=["<x>"])
    return SENTENCES * 4 + CODE * 4 + [generator.cut_sentence() for _ in range(400)]


def corpus(added_tokens, count=6000):
    """`count` generated lines after all the sentences, snippets and small cases."""
    small = ["", "a", " a", "a ", "é", "漢", "😀", "\u0000", "\ufeff", "▁", " ▁", "▁▁a", "Ġ"]
    return small + SENTENCES + CODE + EMOJI + SPACES + Generator(2, added_tokens).lines(count)
