package gemini

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"path"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

// part translates one piece of content; false leaves it out.
func (e *encoder) part(path string, p *ktmsv1.ContentPart) (part, bool) {
	e.extra(path+".extra_json", p.GetExtraJson())
	switch kind := p.GetPart().(type) {
	case *ktmsv1.ContentPart_Text:
		return part{text: kind.Text}, e.ledger.Carries(vendors.PartText, !blank(kind.Text))
	case *ktmsv1.ContentPart_Refusal:
		return part{text: kind.Refusal}, e.ledger.Carries(vendors.PartRefusal, !blank(kind.Refusal))
	case *ktmsv1.ContentPart_Image:
		i := kind.Image
		e.ledger.Carries(vendors.PartImageDetail, i.GetDetail() != "" && i.GetDetail() != "auto")
		if i.GetUrl() != "" {
			return e.linked(path+".image.url", vendors.PartImageURL, i.GetUrl(), i.GetMimeType())
		}
		return e.inline(path+".image.data", vendors.PartImageData, i.GetData(), i.GetMimeType())
	case *ktmsv1.ContentPart_Audio:
		return e.inline(path+".audio.data", vendors.PartAudio, kind.Audio.GetData(), audioType(kind.Audio))
	case *ktmsv1.ContentPart_Document:
		return e.document(path+".document", kind.Document)
	case *ktmsv1.ContentPart_Embedding:
		return part{}, e.ledger.Carries(vendors.PartEmbedding, true)
	case *ktmsv1.ContentPart_RawJson:
		return part{}, e.ledger.Carries(vendors.PartRaw, true)
	}
	e.ledger.Wrong(path, "is empty")
	return part{}, false
}

func (e *encoder) document(path string, d *ktmsv1.DocumentPart) (part, bool) {
	e.ledger.Carries(vendors.PartDocumentName, d.GetFilename() != "")
	mime := d.GetMimeType()
	if mime == "" {
		mime = typeOf(d.GetFilename())
	}
	switch source := d.GetSource().(type) {
	case *ktmsv1.DocumentPart_FileId:
		if source.FileId == "" {
			e.ledger.Wrong(path+".file_id", "is empty")
		}
		return part{fileURI: source.FileId, mime: mime}, e.ledger.Carries(vendors.PartDocumentFile, true)
	case *ktmsv1.DocumentPart_Url:
		return e.linked(path+".url", vendors.PartDocumentURL, source.Url, mime)
	}
	return e.inline(path+".data", vendors.PartDocumentData, d.GetData(), mime)
}

// inline is content that travels with the request. A media type that is not given is told from the bytes.
func (e *encoder) inline(path string, f vendors.Field, data []byte, mime string) (part, bool) {
	if !e.ledger.Carries(f, true) {
		return part{}, false
	}
	if len(data) == 0 {
		e.ledger.Wrong(path, "is empty")
		return part{}, false
	}
	if mime == "" {
		mime, _, _ = strings.Cut(http.DetectContentType(data), ";")
	}
	return part{data: data, mime: mime}, true
}

// linked is content that the vendor fetches, or a data: URL.
func (e *encoder) linked(path string, f vendors.Field, address, mime string) (part, bool) {
	if address == "" {
		e.ledger.Wrong(path, "is empty")
	}
	if !hasPrefixFold(address, "data:") {
		if mime == "" {
			mime = typeOf(address)
		}
		return part{fileURI: address, mime: mime}, e.ledger.Carries(f, true)
	}
	own, data, ok := parseDataURL(address)
	if !ok {
		e.ledger.Wrong(path, "is not a data: URL with base64 or percent-encoded content")
		return part{}, false
	}
	if own != "" {
		mime = own
	}
	return e.inline(path, f, data, mime)
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// parseDataURL reads a data: URL. The media type is empty if it has none.
func parseDataURL(address string) (mime string, data []byte, ok bool) {
	head, body, ok := strings.Cut(address[len("data:"):], ",")
	if !ok {
		return "", nil, false
	}
	mime, parameters, _ := strings.Cut(head, ";")
	mime = strings.ToLower(strings.TrimSpace(mime))
	plain, err := url.PathUnescape(body)
	if err != nil {
		return "", nil, false
	}
	if !strings.EqualFold(head[strings.LastIndexByte(head, ';')+1:], "base64") || parameters == "" {
		return mime, []byte(plain), true
	}
	// Both alphabets, with padding or without, over one line or several.
	plain = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/", "\r", "", "\n", "", " ", "").Replace(plain), "=")
	data, err = base64.RawStdEncoding.DecodeString(plain)
	return mime, data, err == nil
}

// mediaTypes are those that the vendor knows, by the extension of a name.
var mediaTypes = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif",
	".heic": "image/heic", ".heif": "image/heif", ".bmp": "image/bmp",
	".pdf": "application/pdf", ".txt": "text/plain", ".md": "text/markdown", ".html": "text/html", ".htm": "text/html",
	".csv": "text/csv", ".xml": "text/xml", ".json": "application/json", ".rtf": "text/rtf",
	".mp3": "audio/mp3", ".wav": "audio/wav", ".flac": "audio/flac", ".ogg": "audio/ogg", ".m4a": "audio/m4a",
	".mp4": "video/mp4", ".mov": "video/mov", ".webm": "video/webm", ".mpeg": "video/mpeg",
}

// typeOf tells a media type from a file name or a URL; "" is unknown.
func typeOf(name string) string {
	if u, err := url.Parse(name); err == nil && u.Scheme != "" {
		name = u.Path
	}
	return mediaTypes[strings.ToLower(path.Ext(name))]
}

func audioType(a *ktmsv1.AudioPart) string {
	switch format := strings.ToLower(a.GetFormat()); format {
	case "":
		switch http.DetectContentType(a.GetData()) {
		case "audio/mpeg":
			return "audio/mp3"
		case "application/ogg":
			return "audio/ogg"
		}
		return "audio/wav"
	case "opus": // in an Ogg container
		return "audio/ogg"
	default:
		return "audio/" + format
	}
}
