package source

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// block is a run of whole lines or frames of a file.
type block struct {
	data []byte
	line int   // number of the first line, from 1
	base int64 // offset of the first byte
	last bool  // the file ends with it

	failed bool // it is the last because the stream ended before its proper end
}

// blockSize is how much is read before a block is cut.
const blockSize = 1 << 20

// buffers are those of blocks that have been read.
var buffers sync.Pool

func newBuffer() []byte {
	if buf, ok := buffers.Get().(*[]byte); ok {
		return *buf
	}
	return make([]byte, 0, blockSize)
}

// release gives the buffer of the block back. Large ones are not kept.
func (b block) release() {
	if buf := b.data[:0]; cap(buf) == blockSize {
		buffers.Put(&buf)
	}
}

// where is the place of the document being read, for notes.
func (r *reader) where() string {
	if r.line > 0 {
		return fmt.Sprintf("%s:%d", r.file, r.line)
	}
	return fmt.Sprintf("%s: byte %d", r.file, r.base+r.json.offset())
}

// syntaxError cuts an error of the JSON decoder to its reason.
func syntaxError(err error) error {
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) && syntax.Err != nil {
		return syntax.Err
	}
	return err
}

// document reads one JSON value with the reader of the format. A value that has
// nothing of the format counts as a bad line.
func (r *reader) document() {
	r.known, r.alien = false, false
	kind := r.json.peek()
	if kind != '{' && kind != '[' && kind != 0 {
		r.json.skip()
		r.alien = true
	} else {
		r.format(r)
	}
	if r.json.err == nil && r.alien && !r.known {
		r.reasons.add(trace.NoteBadLine, "nothing in it belongs to the format")
		r.note(trace.NoteBadLine, nil)
	}
}

// readLines reads a block of lines. A line that is broken costs the whole line:
// nothing of it is kept.
func (r *reader) readLines(b block) {
	r.line = b.line - 1
	for rest := b.data; len(rest) > 0 && !errors.Is(r.json.err, errStopped); {
		line, after, found := bytes.Cut(rest, []byte("\n"))
		rest = after
		r.line++
		if line = bytes.TrimRight(trimStart(line), "\x00"); len(line) == 0 {
			continue
		}
		first, before, noted, reasons, hint := len(r.spans), r.notes, r.noted, r.reasons, r.hint
		r.notes, r.noted, r.holds = trace.Notes{}, 0, 1
		r.json.resetBytes(line)
		for r.json.err == nil {
			r.document()
		}
		r.holds = 0
		if err := r.json.err; errors.Is(err, io.EOF) {
			if r.noted > 0 {
				before.Merge(r.notes)
			}
			r.notes, r.noted = before, noted+r.noted
		} else {
			clear(r.spans[first:])
			r.spans, r.notes, r.noted, r.reasons, r.hint = r.spans[:first], before, noted, reasons, hint
			if errors.Is(err, errDoubt) {
				err = r.json.fault(line)
			}
			switch cut := b.last && !found && errors.Is(err, io.ErrUnexpectedEOF); {
			case !cut:
				r.noteBroken(trace.NoteBadLine, err)
			case !b.failed:
				r.noteBroken(trace.NoteTruncated, err)
			} // else how the stream ended is reported by who opened it
		}
		r.json.err = nil
		r.flushFull()
	}
	r.line = 0
}

// noteBroken counts something that could not be read to its end.
func (r *reader) noteBroken(kind trace.NoteKind, err error) {
	r.reasons.add(kind, reasonOf(err))
	r.note(kind, nil)
}

// readDocuments reads JSON values one after the other. A syntax error costs the
// rest of its document: reading goes on at the next line that begins with a
// bracket.
func (r *reader) readDocuments(s *stream) {
	ahead := s.peek(firstLook)
	start := trimStart(ahead)
	r.base = int64(len(ahead) - len(start))
	s.pending = start
	r.json.resetStream(s)
	resumed := false // the decoder stands behind a syntax error
	for {
		r.holds = 0
		r.document()
		switch err := r.json.err; {
		case err == nil:
			resumed = false
			continue
		case errors.Is(err, io.EOF), errors.Is(err, errStopped):
			return
		case s.failed(): // the stream's error is reported by who opened it
			return
		case errors.Is(err, io.ErrUnexpectedEOF):
			r.noteBroken(trace.NoteTruncated, err)
			return
		default:
			unread := r.json.dec.UnreadBuffer()
			if next := bytes.TrimLeft(unread, " \t\r\n"); r.json.dec.StackDepth() > 0 || len(next) == 0 ||
				next[0] != 0 && (!resumed || !closes(next[0])) {
				r.noteBroken(trace.NoteBadLine, err)
			} // else zeros between documents, or what closes the broken one
			resumed = true
			r.base += r.json.dec.InputOffset()
			s.unread(bytes.Clone(unread))
			r.base += skipToBracket(s)
			r.json.resetStream(s)
		}
	}
}

func closes(c byte) bool { return strings.IndexByte(",]}", c) >= 0 }

// skipToBracket moves s to the next bracket at the start of a line, or to the
// end, and returns how far that is.
func skipToBracket(s *stream) (skipped int64) {
	for {
		ahead := s.peek(1 << 12)
		if rest := nextStart(ahead); rest != nil {
			s.pending = rest
			return skipped + int64(len(ahead)-len(rest))
		}
		// The last byte may be the line's end before the bracket.
		drop := max(len(ahead)-1, 0)
		skipped += int64(drop)
		s.pending = ahead[drop:]
		if s.err != nil {
			s.pending = nil
			return skipped + int64(len(ahead)-drop)
		}
	}
}

// readMessage reads one TracesData, one of its ResourceSpans at a time.
func (r *reader) readMessage(s *stream) {
	var buf []byte
	r.json.resetBytes(nil)
	for r.json.err == nil {
		head := s.peek(maxFieldHeader)
		if len(head) == 0 {
			return
		}
		isResourceSpans, size, err := fieldSize(head)
		switch {
		case err != nil:
		case isResourceSpans:
			// A length is a claim: memory is taken as the bytes come.
			buf, err = readUpTo(s, buf[:0], size)
			if broken := r.readTracesData(buf); broken != nil && err == nil {
				r.noteBroken(trace.NoteBadLine, broken)
			} // what is whole of a cut message is kept, and the cut noted below
		default:
			_, err = io.CopyN(io.Discard, s, size)
		}
		switch {
		case err == nil:
		case s.failed(): // the stream's error is reported by who opened it
			return
		case errors.Is(err, errBadProto):
			r.noteBroken(trace.NoteBadLine, err)
			return
		default:
			r.noteBroken(trace.NoteTruncated, io.ErrUnexpectedEOF)
			return
		}
		r.base += size
	}
}

// maxFieldHeader is the length of the longest tag and length of a field.
const maxFieldHeader = 2 * binary.MaxVarintLen64

// fieldSize returns the size of the field of a TracesData that head begins
// with, tag and length included, and whether it is a ResourceSpans.
func fieldSize(head []byte) (isResourceSpans bool, size int64, err error) {
	num, typ, n := protowire.ConsumeTag(head)
	if n < 0 {
		return false, 0, protoError(n)
	}
	if typ != protowire.BytesType {
		m := protowire.ConsumeFieldValue(num, typ, head[n:])
		if m < 0 {
			return false, 0, protoError(m)
		}
		return false, int64(n + m), nil
	}
	length, m := protowire.ConsumeVarint(head[n:])
	switch {
	case m < 0:
		return false, 0, protoError(m)
	case length > maxMessage:
		return false, 0, errBadProto
	}
	return num == 1, int64(n+m) + int64(length), nil
}

// readUpTo appends n bytes of src to buf. Short input is io.ErrUnexpectedEOF.
func readUpTo(src io.Reader, buf []byte, n int64) ([]byte, error) {
	for n > 0 {
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, max(2*cap(buf), int(min(n, 1<<16)))), buf...)
		}
		room := buf[len(buf):cap(buf)]
		if int64(len(room)) > n {
			room = room[:n]
		}
		k, err := src.Read(room)
		buf = buf[:len(buf)+k]
		n -= int64(k)
		if err != nil && n > 0 {
			return buf, io.ErrUnexpectedEOF
		}
	}
	return buf, nil
}

// readFrames reads a block of messages with their lengths before them.
func (r *reader) readFrames(b block) {
	r.json.resetBytes(nil)
	r.base = b.base
	for rest := b.data; len(rest) > 0 && r.json.err == nil; {
		var msg []byte
		short := len(rest) < frameHeader
		if !short {
			size := int64(binary.BigEndian.Uint32(rest))
			rest = rest[frameHeader:]
			short = size > int64(len(rest))
			msg = rest[:min(size, int64(len(rest)))]
			rest = rest[len(msg):]
		} else {
			rest = nil
		}
		err := r.readTracesData(msg)
		switch {
		case short && b.failed: // the stream's error is reported by who opened it
		case short:
			r.noteBroken(trace.NoteTruncated, io.ErrUnexpectedEOF)
		case err != nil:
			r.noteBroken(trace.NoteBadLine, err)
		}
		r.base += int64(frameHeader + len(msg))
		r.flushFull()
	}
}

// blocks cuts a stream into blocks.
type blocks struct {
	s     *stream
	form  shape // lines or frames
	carry []byte
	line  int
	base  int64
	done  bool
}

func newBlocks(s *stream, form shape) *blocks {
	return &blocks{s: s, form: form, line: 1}
}

// whole returns the length of the whole lines or frames in data.
func (b *blocks) whole(data []byte) int {
	if b.form == frames {
		return wholeFrames(data)
	}
	return bytes.LastIndexByte(data, '\n') + 1
}

// next returns the next block, false at the end of the stream.
func (b *blocks) next() (block, bool) {
	if b.done {
		return block{}, false
	}
	buf := append(slices.Grow(newBuffer(), 2*len(b.carry)), b.carry...)
	for {
		var err error
		buf, err = readUpTo(b.s, buf, int64(cap(buf)-len(buf)))
		if err != nil {
			b.done = true
			return block{data: buf, line: b.line, base: b.base, last: true, failed: b.s.failed()}, len(buf) > 0
		}
		if n := b.whole(buf); n > 0 {
			next := block{data: buf[:n], line: b.line, base: b.base}
			b.carry = append(b.carry[:0], buf[n:]...) // buf belongs to the block
			b.line += bytes.Count(next.data, []byte("\n"))
			b.base += int64(n)
			return next, true
		}
		if b.form == lines && len(trimStart(buf)) == 0 {
			// Zeros without end, as sparse files have, must not fill the memory.
			b.base += int64(len(buf))
			buf = buf[:0]
			continue
		}
		// One line or frame is longer than the buffer.
		buf = append(make([]byte, 0, 2*cap(buf)), buf...)
	}
}

func wholeFrames(data []byte) int {
	n := 0
	for len(data)-n >= frameHeader {
		size := frameHeader + int64(binary.BigEndian.Uint32(data[n:]))
		if size > int64(len(data)-n) {
			break
		}
		n += int(size)
	}
	return n
}
