package anthropic

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/claude"
)

// part writes one part of a message; nil if there is nothing to write.
func (e *encoder) part(path, role string, p *ktmsv1.ContentPart) *block {
	var b *block
	switch part := p.GetPart().(type) {
	case *ktmsv1.ContentPart_Text:
		if e.Carries(vendors.PartText, strings.TrimSpace(part.Text) != "") {
			b = &block{kind: "text", text: part.Text}
		}
	case *ktmsv1.ContentPart_Refusal:
		if e.Carries(vendors.PartRefusal, strings.TrimSpace(part.Refusal) != "") {
			b = &block{kind: "text", text: part.Refusal}
		}
	case *ktmsv1.ContentPart_Image:
		b = e.image(path, part.Image)
	case *ktmsv1.ContentPart_Document:
		b = e.document(path, part.Document)
	case *ktmsv1.ContentPart_Audio:
		e.Carries(vendors.PartAudio, true)
	case *ktmsv1.ContentPart_Embedding:
		e.Carries(vendors.PartEmbedding, true)
	case *ktmsv1.ContentPart_RawJson:
		e.Carries(vendors.PartRaw, true)
	default:
		e.Wrong(path, "is empty")
	}
	if b != nil && b.kind != "text" && role == "assistant" {
		e.Refuse(path, "an assistant's turn holds text and calls alone here")
	}
	if extra := e.extra(path+".extra_json", p.GetExtraJson(), cacheControl); extra != nil {
		switch mark := e.mark(extra.Get(cacheControl)); {
		case b != nil:
			b.cache = mark
		case mark != claude.None:
			e.Drop(cacheControl)
		}
	}
	return b
}

// imageTypes are the media types of images that the vendor takes.
var imageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

func (e *encoder) image(path string, image *ktmsv1.ImagePart) *block {
	e.Carries(vendors.PartImageDetail, image.GetDetail() != "" && image.GetDetail() != "auto")
	declared, data := image.GetMimeType(), image.GetData()
	if address := image.GetUrl(); address != "" {
		if !e.Carries(vendors.PartImageURL, true) {
			return nil
		}
		if !strings.HasPrefix(address, "data:") {
			return e.linked("image", path+".image.url", address)
		}
		var ok bool
		if declared, data, ok = e.dataURL(path+".image.url", address); !ok {
			return nil
		}
	} else if !e.Carries(vendors.PartImageData, true) {
		return nil
	}
	media := mediaType(declared, data)
	if !slices.Contains(imageTypes, media) {
		e.Refuse(path+".image", fmt.Sprintf("images have to be JPEG, PNG, GIF or WebP, not %q", media))
		return nil
	}
	return &block{kind: "image", source: &source{kind: "base64", mediaType: media, data: data}}
}

func (e *encoder) document(path string, d *ktmsv1.DocumentPart) *block {
	b := e.documentSource(path, d)
	if b != nil && e.Carries(vendors.PartDocumentName, strings.TrimSpace(d.GetFilename()) != "") {
		b.title = d.GetFilename()
	}
	return b
}

func (e *encoder) documentSource(path string, d *ktmsv1.DocumentPart) *block {
	declared, data := d.GetMimeType(), d.GetData()
	switch from := d.GetSource().(type) {
	case *ktmsv1.DocumentPart_FileId:
		if !e.Carries(vendors.PartDocumentFile, true) {
			return nil
		}
		return &block{kind: "document", source: &source{kind: "file", value: from.FileId}}
	case *ktmsv1.DocumentPart_Url:
		if !e.Carries(vendors.PartDocumentURL, true) {
			return nil
		}
		if !strings.HasPrefix(from.Url, "data:") {
			return e.linked("document", path+".document.url", from.Url)
		}
		var ok bool
		if declared, data, ok = e.dataURL(path+".document.url", from.Url); !ok {
			return nil
		}
	default:
		if !e.Carries(vendors.PartDocumentData, true) {
			return nil
		}
	}
	media := mediaType(declared, data)
	switch {
	case media == "application/pdf":
		return &block{kind: "document", source: &source{kind: "base64", mediaType: media, data: data}}
	case isText(media) && utf8.Valid(data):
		if strings.TrimSpace(string(data)) == "" {
			return nil // as with any blank text
		}
		return &block{kind: "document", source: &source{kind: "text", mediaType: "text/plain", value: string(data)}}
	}
	e.Refuse(path+".document", fmt.Sprintf("documents have to be PDF or text in UTF-8, not %q", media))
	return nil
}

// isText reports whether documents of a media type can be read as text.
func isText(media string) bool {
	return strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "+json") || strings.HasSuffix(media, "+xml") ||
		slices.Contains([]string{"application/json", "application/xml", "application/yaml", "application/x-yaml", "application/csv"}, media)
}

// linked is an image or a document that the vendor fetches itself.
func (e *encoder) linked(kind, path, address string) *block {
	if !strings.HasPrefix(address, "https://") {
		e.Refuse(path, "this vendor fetches https: URLs alone")
		return nil
	}
	return &block{kind: kind, source: &source{kind: "url", value: address}}
}

// mediaType is the declared one, in the vendor's spelling, or what the bytes tell.
func mediaType(declared string, data []byte) string {
	media, _, _ := strings.Cut(declared, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	switch media {
	case "image/jpg", "image/pjpeg":
		return "image/jpeg"
	case "application/x-pdf":
		return "application/pdf"
	case "", "application/octet-stream":
		media, _, _ = strings.Cut(http.DetectContentType(data), ";")
	}
	return media
}

// dataURL reads a data: URL.
func (e *encoder) dataURL(path, address string) (media string, data []byte, ok bool) {
	head, body, found := strings.Cut(strings.TrimPrefix(address, "data:"), ",")
	if !found {
		e.Wrong(path, "is not a data: URL")
		return "", nil, false
	}
	plain, err := url.PathUnescape(body)
	if err != nil {
		e.Wrong(path, "is not a data: URL: its percent-encoding is wrong")
		return "", nil, false
	}
	media, encoded := strings.CutSuffix(head, ";base64")
	if !encoded {
		return media, []byte(plain), true
	}
	plain = strings.TrimRight(strings.NewReplacer("\n", "", "\r", "", " ", "").Replace(plain), "=")
	data, err = base64.RawStdEncoding.DecodeString(plain)
	if err != nil {
		data, err = base64.RawURLEncoding.DecodeString(plain)
	}
	if err != nil {
		e.Wrong(path, "is not a data: URL: its base64 is wrong")
		return "", nil, false
	}
	return media, data, true
}
