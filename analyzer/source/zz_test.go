package source
import ("testing";"encoding/binary";"fmt";"strings")
func TestZZ(t *testing.T){
 var doc strings.Builder
 for i := range 2000 { doc.WriteString(otlp(otlpSpan(fmt.Sprintf("%016x", uint64(i+1)*0x9e3779b97f4a7c15), "")) + "\n") }
 z:=zstded(doc.String())
 pz:=zstded(string(protoData(protoSpan(1))))
 for name,c := range map[string]string{"gzip":gzipped(doc.String()),"zstd":z,"framed": string(binary.BigEndian.AppendUint32(nil,uint32(len(z))))+z,"framedproto": string(binary.BigEndian.AppendUint32(nil,uint32(len(pz))))+pz, "smallz": zstded(otlp(otlpSpan("1",""))), "smallframedz": string(binary.BigEndian.AppendUint32(nil,uint32(len(zstded(otlp(otlpSpan("1","")))))))+zstded(otlp(otlpSpan("1","")))}{
  last:=""
  for n:=1;n<=len(c)&&n<3000;n++{
   got:=readStdin(t,Options{},c[:n],"-")
   s:=fmt.Sprint(len(got.spans)>0, got.errs, counted(got.notes))
   if s!=last {fmt.Println(name,n,len(c),s); last=s}
  }
 }
}
