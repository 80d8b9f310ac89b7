package transport

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ai-process/ktms/vendors"
)

const (
	secretMark = "[secret]"
	// gram is how much of a key has to appear in a text to count as a leak: vendors echo keys in part ("Incorrect API
	// key provided: sk-ab…").
	gram = 8
	// wholeWord: shorter keys may be ordinary words ("ollama"), which count where they stand alone.
	wholeWord = 8
	// minKey is the shortest key that is looked for; what servers without keys are given ("x") is no secret.
	minKey = 4
	// maxSaid is how much of what a vendor said is looked at: the search for secrets takes its time.
	maxSaid = 8 << 10
	// maxText is how much of what a vendor said is worth showing.
	maxText = 600
)

// looksSecret are the forms of keys in common use.
var looksSecret = regexp.MustCompile(`(?i)\bAIza[a-z0-9_*\-]{16,}|\b(?:AKIA|ASIA)[a-z0-9]{12,}|` +
	`\beyJ[a-z0-9_\-]{8,}\.[a-z0-9_.\-]+|` +
	`\b(?:api[-_ ]?key|x-api-key|authorization|access[-_ ]?token)["']?\s*[:=]\s*["']?(?:(?:bearer|basic)\s+)?[^\s"',}]{6,}`)

// maySecret are forms that ordinary words have, too ("basic information", "sk-learn_models"): they count with a digit, a
// mask or twenty characters.
var maySecret = regexp.MustCompile(`(?i)\b(?:(?:sk|rk|pk|gsk|xai|nvapi|hf|ktms|llm)[-_]|(?:bearer|basic)\s+)([a-z0-9._~+/=*\-]{6,})`)

func redactLikely(found string) string {
	rest := maySecret.FindStringSubmatch(found)[1]
	if len(rest) >= 20 || strings.ContainsAny(rest, "0123456789*") {
		return secretMark
	}
	return found
}

var (
	htmlTitle = regexp.MustCompile(`(?is)<(?:title|h1)[^>]*>(.*?)</(?:title|h1)>`)
	htmlTag   = regexp.MustCompile(`(?s)<[^>]*>`)
)

// Text makes what a vendor said fit to show: without the key or anything that looks like one, on one line, and short.
// An HTML page becomes its title.
func Text(said string, key vendors.Secret) string {
	if said = strings.TrimSpace(said); len(said) > maxSaid {
		said = strings.ToValidUTF8(said[:maxSaid], "")
	}
	if strings.HasPrefix(said, "<") {
		title := "an HTML page"
		if m := htmlTitle.FindStringSubmatch(said); m != nil {
			title += ": " + htmlTag.ReplaceAllString(m[1], " ")
		}
		said = title
	}
	return shorten(oneLine(Redact(said, key)))
}

// Redact replaces the key, in any form and also in part, and whatever looks like a key.
func Redact(text string, key vendors.Secret) string {
	if plain := key.Reveal(); len(plain) >= minKey {
		for _, form := range [...]string{
			plain, url.QueryEscape(plain), url.PathEscape(plain), base64.StdEncoding.EncodeToString([]byte(plain)),
			base64.RawURLEncoding.EncodeToString([]byte(plain)),
		} {
			text = redactGrams(text, form)
		}
	}
	return maySecret.ReplaceAllStringFunc(looksSecret.ReplaceAllString(text, secretMark), redactLikely)
}

// redactGrams replaces every run of text that consists of pieces of key, gram bytes long or the whole of a shorter key.
func redactGrams(text, key string) string {
	size := min(gram, len(key))
	low, lowKey := lower(text), lower(key)
	grams := make(map[string]bool, len(key))
	for i := 0; i+size <= len(lowKey); i++ {
		grams[lowKey[i:i+size]] = true
	}
	var out strings.Builder
	kept := 0
	for i := 0; i+size <= len(low); {
		if !grams[low[i:i+size]] {
			i++
			continue
		}
		end := i + size
		for end < len(low) && grams[low[end+1-size:end+1]] {
			end++
		}
		if len(key) < wholeWord && !alone(low, i, end) {
			i++
			continue
		}
		out.WriteString(text[kept:i])
		out.WriteString(secretMark)
		kept, i = end, end
	}
	if kept == 0 {
		return text
	}
	out.WriteString(text[kept:])
	return out.String()
}

// alone reports whether a piece of text is no part of a longer word.
func alone(text string, start, end int) bool {
	return (start == 0 || !isWord(text[start-1])) && (end == len(text) || !isWord(text[end]))
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '/' || c >= 0x80
}

// lower is strings.ToLower for ASCII alone, so that offsets stay.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "\uFFFD"), func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
}

func shorten(s string) string {
	if len(s) <= maxText {
		return s
	}
	end := maxText
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
