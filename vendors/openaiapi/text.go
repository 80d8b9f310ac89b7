package openaiapi

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// hex4 reads the four hexadecimal digits of a \u escape.
func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unquote resolves the escapes of a checked string. Half a surrogate pair becomes U+FFFD, as in encoding/json.
func unquote(b []byte) string {
	i := bytes.IndexByte(b, '\\')
	if i < 0 {
		return string(b)
	}
	out := make([]byte, 0, len(b))
	for i >= 0 {
		out = append(out, b[:i]...)
		c := b[i+1]
		b = b[i+2:]
		switch c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, _ := hex4(b)
			b = b[4:]
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if len(b) >= 6 && b[0] == '\\' && b[1] == 'u' {
					low, _ = hex4(b[2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					b = b[6:]
				}
			}
			out = utf8.AppendRune(out, r)
		default: // a quote, a backslash or a slash stands for itself
			out = append(out, c)
		}
		i = bytes.IndexByte(b, '\\')
	}
	return string(append(out, b...))
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string. Broken UTF-8 becomes U+FFFD; nothing is escaped for HTML.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, s[start:i]...)
				dst = append(dst, "\uFFFD"...)
				start = i + 1
			}
			i += size
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// AppendNumber appends f in the shortest form that reads back the same; whole numbers stay without a point. JSON has
// no spelling for NaN and infinity, which become null.
func AppendNumber(dst []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...)
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(dst, f, format, -1, 64)
}

// key appends a member's name; the object was opened with '{' in dst.
func key(dst []byte, name string) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	dst = append(dst, '"')
	dst = append(dst, name...)
	return append(dst, '"', ':')
}

func stringMember(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return AppendString(key(dst, name), value)
}

func numberMember(dst []byte, name string, value *float64) []byte {
	if value == nil {
		return dst
	}
	return AppendNumber(key(dst, name), *value)
}

func intMember(dst []byte, name string, value *int64) []byte {
	if value == nil {
		return dst
	}
	return strconv.AppendInt(key(dst, name), *value, 10)
}

func boolMember(dst []byte, name string, value *bool) []byte {
	if value == nil {
		return dst
	}
	return strconv.AppendBool(key(dst, name), *value)
}

func rawMember(dst []byte, name string, value []byte) []byte {
	if len(value) == 0 {
		return dst
	}
	return append(key(dst, name), value...)
}
