/** The currencies that the service accepts: all of ISO 4217, current and withdrawn. A test compares them with its own. */

const CODES =
  "adp aed afa afn alk all amd ang aoa aok aon aor ara arp ars ary ats aud awg aym azm azn bad bam bbd bdt bec " +
  "bef bel bgj bgk bgl bgn bhd bif bmd bnd bob bop bov brb brc bre brl brn brr bsd btn buk bwp byb byn byr bzd " +
  "cad cdf chc che chf chw clf clp cny cop cou crc csd csj csk cuc cup cve cyp czk ddm dem djf dkk dop dzd ecs " +
  "ecv eek egp ern esa esb esp etb eur fim fjd fkp frf gbp gek gel ghc ghp ghs gip gmd gne gnf gns gqe grd gtq " +
  "gwe gwp gyd hkd hnl hrd hrk htg huf idr iep ilp ilr ils inr iqd irr isj isk itl jmd jod jpy kes kgs khr kmf " +
  "kpw krw kwd kyd kzt laj lak lbp lkr lrd lsl lsm ltl ltt luc luf lul lvl lvr lyd mad maf mdl mga mgf mkd mlf " +
  "mmk mnt mop mro mru mtl mtp mur mvq mvr mwk mxn mxp mxv myr mze mzm mzn nad ngn nic nio nlg nok npr nzd omr " +
  "pab peh pei pen pes pgk php pkr pln plz pte pyg qar rhd rok rol ron rsd rub rur rwf sar sbd scr sdd sdg sdp " +
  "sek sgd shp sit skk sle sll sos srd srg ssp std stn sur svc syp szl thb tjr tjs tmm tmt tnd top tpe trl try " +
  "ttd twd tzs uah uak ugs ugw ugx usd usn uss uyi uyn uyp uyu uyw uzs veb ved vef ves vnc vnd vuv wst xad xaf " +
  "xag xau xba xbb xbc xbd xcd xcg xdr xeu xfo xfu xof xpd xpf xpt xre xsu xts xua xxx ydd yer yud yum yun zal " +
  "zar zmk zmw zrn zrz zwc zwd zwg zwl zwn zwr";

const codes = new Set(CODES.split(" "));

export function isCurrency(code: string): boolean {
  return codes.has(code);
}
