package admit

import (
	"strings"
	"testing"
)

func TestCounter_Weights(t *testing.T) {
	for _, one := range []struct {
		text string
		want int64
	}{
		{"aZ", 2 * weightLetter},
		{" ", weightLetter},
		{"09", 2 * weightDigit},
		{"\n\t\x00", 3 * weightControl},
		{"!/:@[`{~\x7f", 9 * weightPunct},
		{strings.Repeat("a", wordLength), wordLength * weightLetter},
		{strings.Repeat("a", wordLength) + "1b", wordLength*weightLetter + 2*weightBuried},
		{strings.Repeat("a", wordLength) + " b", (wordLength + 2) * weightLetter},
		{strings.Repeat("a", wordLength) + "-b", (wordLength+1)*weightLetter + weightPunct},
		{strings.Repeat("a", wordLength) + "éb", (wordLength+1)*weightLetter + weightLatin},
		{"ж", weightSlavic}, {"ع", weightAbjad}, {"न", weightIndic}, {"\u6f22", weightIdeo}, {"🙂", weightOther},
		{"\xff", weightOther}, // no UTF-8 at all
	} {
		var whole, pieces Counter
		whole.Add(one.text)
		for i := range one.text {
			end := i + 1
			for end < len(one.text) && one.text[end]&0xC0 == 0x80 {
				end++
			}
			pieces.Add(one.text[i:end])
		}
		if whole.milli != one.want || pieces != whole {
			t.Errorf("%q weighs %d at once and %d in pieces, want %d", one.text, whole.milli, pieces.milli, one.want)
		}
	}
}
