"""The script that a letter belongs to, by its Unicode block: enough to tell letters of one alphabet from those of another.

Han, kana, bopomofo and hangul are one script here, since texts mix them. Blocks that are not listed are one script too; letters that all scripts use (modifiers, letter-like
and mathematical signs) have none.
"""

from functools import cache

import numpy as np

from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Bytes, Int, kernel

NO_SCRIPT, OTHER_SCRIPT, LATIN, GREEK, CYRILLIC = range(5)
SCRIPTS = 64
"""More than there are."""

_BLOCKS = """
Latin 0000-02AF 1E00-1EFF 2C60-2C7F A720-A7FF AB30-AB6F FB00-FB0F FF00-FF5F
Greek 0370-03FF 1F00-1FFF
Cyrillic 0400-052F 1C80-1C8F 2DE0-2DFF A640-A69F
Armenian 0530-058F FB10-FB1F
Hebrew 0590-05FF FB20-FB4F
Arabic 0600-06FF 0750-077F 0860-08FF FB50-FDFF FE70-FEFF
Syriac 0700-074F
Thaana 0780-07BF
Nko 07C0-07FF
Devanagari 0900-097F A8E0-A8FF
Bengali 0980-09FF
Gurmukhi 0A00-0A7F
Gujarati 0A80-0AFF
Oriya 0B00-0B7F
Tamil 0B80-0BFF
Telugu 0C00-0C7F
Kannada 0C80-0CFF
Malayalam 0D00-0D7F
Sinhala 0D80-0DFF
Thai 0E00-0E7F
Lao 0E80-0EFF
Tibetan 0F00-0FFF
Myanmar 1000-109F A9E0-A9FF AA60-AA7F
Georgian 10A0-10FF 1C90-1CBF 2D00-2D2F
Ethiopic 1200-139F 2D80-2DDF AB00-AB2F
Cherokee 13A0-13FF AB70-ABBF
Canadian 1400-167F 18B0-18FF
Khmer 1780-17FF 19E0-19FF
Mongolian 1800-18AF
Coptic 2C80-2CFF
Tifinagh 2D30-2D7F
Yi A000-A4CF
East_Asian 1100-11FF 2E80-9FFF A960-A97F AC00-D7FF F900-FAFF FF60-FFDF 20000-3FFFF
"""
_NONE = ("02B0-036F", "1D00-1DFF", "2000-2BFF")


@cache
def load_scripts() -> Bytes:
    """Return the number of the script of each sixteen code points, uint8 (69632,)."""
    scripts = np.full(0x110000 >> 4, OTHER_SCRIPT, np.uint8)
    lines = _BLOCKS.strip().splitlines()
    for number, blocks in enumerate((_NONE, *(line.split()[1:] for line in lines))):
        for block in blocks:
            first, last = (int(code, 16) for code in block.split("-"))
            scripts[first >> 4 : (last >> 4) + 1] = number + 1 if number else NO_SCRIPT
    return for_kernel(scripts)


@kernel
def script_of(code: Int, scripts: Bytes) -> Int:
    """Return the number of the script of a code point."""
    return np.int64(scripts[np.uint64(code >> 4)])
