"""Account names: tuples of parts, compared part by part, and what keeps one name from passing for another.

>>> account("acme/ads"), text(("acme", "ads"))
(('acme', 'ads'), 'acme/ads')
"""

from __future__ import annotations

import unicodedata
from typing import TypeAlias

from dither.core import checks
from dither.core.errors import InputError

Account: TypeAlias = tuple[str, ...]

PARTS_MAX = 16
PART_MAX = 64

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BLANK = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x2D7F, 0x3164, 0xFFA0, 0x13441, 0x13442, 0x16FE4, 0x1D159),
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)
"""Letters and marks that show nothing (fillers, joiners, variation selectors) though their category says otherwise."""
_SLASHES = frozenset("/⁄∕⧸╱⟋⫽⫻⁁᜵Ⳇ𝈺")

_TABLE = (
    "!=ǃⵑ &=ꝸ '=`´ʹʻʼʽʾˈˊˋ˴՚՝\u05d9\u05f3\u07f4\u07f5ᑊᛌ‘’‛′‵ꞌ ''=ʺˮ˶\u05f2\u05f4᳓“”„‟〃〝〞＂ 'B=Ɓ 'D=Ɗ 'P=Ƥ 'T=Ƭ 'Y=Ƴ (=❨❲〔﴾ ((=⸨ "
    ")=❩❳〕﴿ ))=⸩ *=\u066d⁎∗𐌟 +=᛭➕𐊛 ,=\u060d\u066b‚ꓹ -=˗\u06d4‐‑‒–—―⁃−➖Ⲻ -.=꓾ .=\u0660۰\u0701\u0702ꓸ꘎ .,=ꓻ ..=ꓺ /=᜵⁁⁄∕⟋⧸Ⳇ〳ノ㇓丿 "
    "//=⫽ ///=⫻ 2=ƧϨᒿꙄꛯꝚ 3=ƷȜȝɜʒЗӠӡⳌꝪꝫꞫ𑣊𖼻 4=Ꮞ𑢯 5=Ƽ𑢻 6=бᏮⳒ𑣕 7=𐓒𑣆 8=Ȣȣ৪੪𐌚\U0001e8cb 9=৭੧୨൭ⳊꝮ𑢬𑣌𑣖 :=ː˸։\u05c3\u0703\u0704᛬᠃᠉⁚∶ꓽ꞉ "
    "<=˂ᐸᚲ‹❮ <<=≪ <<<=⋘ ==᐀⹀゠꓿ >=˃ᐳ›❯𖼿 ><=⪥ >>=≫⨠ >>>=⋙ ?=ɁʔॽᎮꛫ A=ΑАᎪᗅꓮ𐊠𖽀 AA=Ꜳ AE=ÆӔ AO=Ꜵ AU=Ꜷ AV=ꜸꜺ AY=Ꜽ B=ΒВᏴᗷꓐꞴ𐊂𐊡𐌁 "
    "C=ϹСᏟⲤꓚ𐊢𐌂𐐕𐔜𑣩𑣲 C'=Ƈ D=Ꭰᗞᗪꓓ E=ΕЕᎬ⋿ⴹꓰ𐊆𑢦𑢮 F=ϜᖴꓝꞘ𐊇𐊥𐔥𑢢𑣂 G=ԌᏀᏳꓖ G'=Ɠ H=ΗНᎻᕼⲎꓧ𐋏 I=ΙІӀ J=ͿЈᎫᒍꓙꞲ K=ΚКᏦᛕⲔꓗ𐔘 K'=Ƙ L=ԼᏞᒪⳐꓡ𐐛𐔦𑢣𑢲𖼖 "
    "M=ΜϺМᎷᗰᛖⲘꓟ𐊰𐌑 N=ΝⲚꓠ𐔓 O=ΟОՕ\u07c0০ଠ୦ዐⲞⵔ〇ꓳ𐊒𐊫𐐄𐓂𐔖𑓐𑢵𑣠 O'=ƠᎤ OE=Œ OO=ꚘꝎ P=ΡРᏢᑭⲢꓑ𐊕 P'=ᒆ Q=Ԛⵕ R=ƦᎡᏒᖇꓣ𐒴𖼵 S=ЅՏᏕᏚꓢ𐊖𐐠𖼺 T=ΤТᎢ⊤⟙Ⲧꓔ𐊗𐊱𐌕𑢼𖼊 "
    "T3=Ꜩ U=Սሀᑌ∪ꓴ𐓎𑢸𖽂 U'=ᑧ V=Ѵ\u0667۷Ꮩᐯⴸꓦꛟ𐔝𑢠𖼈 W=ԜᎳᏔꓪ𑣦𑣯 X=ΧХ᙭ᚷⲬⵝꓫꞳ𐊐𐊴𐌗𐌢𐔧𑣬 Y=ΥУҮᎩᎽⲨꓬ𐊲𑢤𖽃 Z=ΖᏃꓜ𐋵𑢩𑣥 \\=∖⟍⧵⧹㇔丶 \\\\=⑊⳹ ^=˄ˆ _=\u07fa "
    "a=ɑαаᴀ aa=ꜳ ae=æӕ ao=ꜵ au=ꜷ av=ꜹꜻ ay=ꜽ b=ßƄβЬвьᏏᑲᖯ b'=ᒈ bl=Ы c=ϲсᴄⲥꮯ𐐽 d=ԁᏧᑯᴅꓒ d'=ᒇ dz=ʣ e=ǝəɛεеэєҽәԑᴇ℮ꞓꬲ f=ſքẝꞙꬵ g=ƍɡԍցᶃ "
    "h=ʜнһհᏂ i=ıǀɩɪʟιіӏլᎥꙇꭵ𑣃 j=ȷϳјյᴊ k=κкҡᴋⱪ l=Ɩ\u05c0\u05d5\u05df\u0627\u0661۱\u07caᛁ∣⏽Ⲓⵏꓲ𐊊𐌉𐌠𖼨\U0001e8c7 l'=\u05f1 lO=Ю "
    "ll=ǁ\u05f0‖∥ ls=ʪ lt=₶ lz=ʫ m=мᴍ n=ɴηπпոռᴨ o=Øøοσоօ\u05e1\u0647\u0665\u06be\u06c1\u06d5۵०੦૦௦౦೦ഠ൦๐໐༠ဝ၀ჿ០᠐ᴏᴑⲟꬽ𐐬𐓪𑣈𑣗 o'=ơ oe=œ "
    "oo=∞ꚙꝏ p=ρрᴘⲣ q=ԛգզ r=ʀгⲅꭇꭈꮁ r'=ґ rn=𑜀𑣣 s=ƽѕꜱꮪ𐑈𑣁 t=τтᴛ tf=ꝷ ts=ʦ u=ʋμυսᴜꞟꭎꭒ𐓶𑣘 ue=ᵫ uo=ꭣ v=νѵ\u05d8ᴠ∨ꮩ𑜆𑣀 w=ɯωѡԝաᴡꙍꞷꮃ𑜊𑜎𑜏 "
    "x=×χхᕁᕽ᙮⤫⤬⨯ꭓ y=ɣʏγуүყᶌỿꭚ𑣜 z=ᴢꮓ𑣄 {=❴ }=❵ ~=⁓∼ þ=ƿϸ Đ=ÐƉ Ɵ=ΘѲӨ ɔ=ͻᴐↄ ɜ=з ɵ=θѳө ψ=ѱ Г=Γ Л=Λ П=Π Ф=Φ г=ᴦ и=ͷᴎ л=ʌᴧᴫ ф=ɸφ я=ᴙ "
)
"""What a letter or sign looks like, by what it resembles: after Unicode Technical Standard 39, and what else is hard to tell apart."""
_LOOKS = str.maketrans({letter: token[: token.index("=", 1)] for token in _TABLE.split() for letter in token[token.index("=", 1) + 1 :]})
_ALIKE = str.maketrans({"0": "o", "1": "i", "l": "i", "|": "i", "!": "i", "m": "rn", "w": "vv", '"': "''"})
"""Letters that resemble others once case is folded."""
_MARKS = str.maketrans(
    {"\u0326": "\u0327", "\u0321": "\u0327", "\u030c": "\u0306", "\u0305": "\u0304"} | dict.fromkeys("\u0336\u0337\u0338", "\u0335")
)
"""Cedilla and comma, caron and breve, macron and overline, strokes through a letter."""


def account(value: object) -> Account:
    """The account of that name, checked: ``"acme/ads"`` or ``("acme", "ads")``.

    >>> account(("acme", "ads", "weekly reports"))
    ('acme', 'ads', 'weekly reports')
    """
    expected = "a name such as 'acme/ads', or a tuple of its parts"
    if not isinstance(value, str | tuple | list):
        raise checks.refuse("account", value, expected)
    if isinstance(value, str) and len(value) > PARTS_MAX * (PART_MAX + 1):
        raise checks.refuse("account", value, f"at most {PARTS_MAX} parts of {PART_MAX} characters")
    parts = tuple(value.split("/")) if isinstance(value, str) else tuple(value)
    if not 1 <= len(parts) <= PARTS_MAX:
        raise checks.refuse("account", value, f"from 1 to {PARTS_MAX} parts")
    return tuple(part(p) for p in parts)


def part(value: object) -> str:
    """One part of an account name, checked.

    >>> part("ads")
    'ads'
    """
    found = name("account", value, limit=PART_MAX)
    plain = unicodedata.normalize("NFKC", found)
    if plain in {".", ".."}:
        raise checks.refuse("account", found, "a name, not '.' or '..'")
    if not _SLASHES.isdisjoint(plain):
        raise checks.refuse("account", found, "parts without '/' or what looks like it", "Write levels as 'acme/ads'.")
    return found


def name(label: str, value: object, *, limit: int) -> str:
    """A text that shows all it holds: NFC, nothing invisible, no spaces but plain ones inside.

    >>> name("partition", "Île-de-France", limit=64)
    'Île-de-France'
    """
    expected = f"a name of 1 to {limit} visible characters"
    if not isinstance(value, str):
        raise checks.refuse(label, value, expected)
    if not value or len(value) > limit:
        raise checks.refuse(label, value, expected, "" if value else "An empty name, or '/' at an end or doubled, names nothing.")
    plain = value.isascii() and value.isprintable()  # the common case: nothing can hide
    hidden = None if plain else next((c for c in value if not _visible(c)), None)
    if hidden is not None:
        told = f"U+{ord(hidden):04X} ({unicodedata.name(hidden, 'unnamed').lower()})"
        raise InputError(f"{label} holds {told}, which cannot be seen: expected {expected}. Take it out.")
    if value[0] == " " or value[-1] == " ":
        raise checks.refuse(label, value, "no space at either end")
    if unicodedata.category(value[0]).startswith("M"):
        raise checks.refuse(label, value, "a first character that stands by itself, not a mark on what is before it")
    if not unicodedata.is_normalized("NFC", value):
        raise checks.refuse(
            label, value, "text in Unicode form NFC", "Letters and accents are to be one character: unicodedata.normalize('NFC', …)."
        )
    return str.__str__(value)  # a plain text, also of numpy's and other kinds of text


def _visible(letter: str) -> bool:
    kind = unicodedata.category(letter)
    return kind not in _HIDDEN and (kind != "Zs" or letter == " ") and letter not in _BLANK


def skeleton(value: str) -> str:
    """What a part looks like: two parts with one skeleton can be taken for each other.

    Compatibility forms and case are folded; letters and signs of all scripts become the Latin ones they resemble;
    0 and o, and 1, l, i and I, are one; m is rn, w is vv. A difference of two such names is too small for a human eye.

    >>> skeleton("Acme") == skeleton("асme") == skeleton("ACME"), skeleton("ads") == skeleton("ad")
    (True, False)
    """
    seen = _decomposed(value.translate(_LOOKS)).translate(_LOOKS)  # before forms are folded too: ϲ looks like c, and folds to σ
    plain = _decomposed(seen.casefold()).translate(_LOOKS).casefold().translate(_MARKS).translate(_ALIKE)
    return " ".join(plain.replace("i\u0307", "i").replace("j\u0307", "j").split())


def _decomposed(value: str) -> str:
    return unicodedata.normalize("NFD", unicodedata.normalize("NFKC", value))


def guises(value: str) -> tuple[str, str]:
    """What a part looks like, and what it is in another case: two parts that share either can be taken for each other.

    >>> guises("Straße")
    ('strabe', 'strasse')
    """
    return skeleton(value), unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", value).casefold())


def alike(one: str, other: str) -> bool:
    """Whether two different parts could be taken for each other.

    >>> alike("ads", "adѕ"), alike("ads", "ads"), alike("ads", "sales")
    (True, False, False)
    """
    return one != other and any(a == b for a, b in zip(guises(one), guises(other), strict=True))


def text(given: Account) -> str:
    """The name as people write it.

    >>> text(("acme", "ads"))
    'acme/ads'
    """
    return "/".join(given)


def lineage(given: Account) -> tuple[Account, ...]:
    """The account and all above it, root first.

    >>> lineage(("acme", "ads"))
    (('acme',), ('acme', 'ads'))
    """
    return tuple(given[:depth] for depth in range(1, len(given) + 1))
